"""Resource quotas: a namespace may not ask for more than they leave."""

from __future__ import annotations

from typing import Any

from apportion.apis import quantity
from pocketkube.api import status
from pocketkube.api.admission import pod_resources, quota_usage
from pocketkube.api.admission.quota_ledger import Account, QuotaLedger
from pocketkube.api.admission.quota_usage import CLAIMS, PODS, SERVICES
from pocketkube.api.content.conversion import bucket_of
from pocketkube.api.request_attributes import Attributes

Obj = dict[str, Any]

# What is counted again when it changes: the endpoint through which it can come to take more.
_CHANGES = {(PODS, "resize"), (SERVICES, ""), (CLAIMS, "")}


def check(ledger: QuotaLedger, attrs: Attributes, obj: Obj, old: Obj | None) -> None:
    """Refuse what would take more than a quota has left; a change is charged with what it adds."""
    bucket = bucket_of(attrs.resource)
    created = attrs.operation == "CREATE" and not attrs.subresource
    if not attrs.resource.namespaced or not (created or (bucket, attrs.subresource) in _CHANGES):
        return
    for name, account in ledger.accounts(attrs.namespace, bucket):
        if not quota_usage.concerns(account.spec, bucket, obj):
            continue
        if created and bucket == PODS and (missing := quota_usage.unspecified(account.hard, obj)):
            why = f"failed quota: {name}: must specify {'; '.join(missing)}"
            raise status.forbidden(attrs.resource, attrs.name, why)
        before = quota_usage.usage(bucket, old) if old is not None and not created else {}
        _charge(attrs, name, account, _more(quota_usage.usage(bucket, obj), before))


def _more(after: dict[str, str], before: dict[str, str]) -> dict[str, str]:
    """What a change adds; all of it for something new."""
    if not before:
        return after
    changes = {name: quantity.nanos(after[name]) - quantity.nanos(before.get(name, "0")) for name in after}
    return {name: pod_resources.text(change, after[name]) for name, change in changes.items() if change > 0}


def _charge(attrs: Attributes, name: str, account: Account, wanted: dict[str, str]) -> None:
    hard = account.hard
    over = sorted(
        key
        for key, amount in wanted.items()
        if key in hard and account.totals.get(key, 0) + quantity.nanos(amount) > quantity.nanos(hard[key])
    )
    if not over:
        return
    asked, before, limit = (
        ",".join(f"{key}={values[key]}" for key in over) for values in (wanted, account.used(), hard)
    )
    why = f"exceeded quota: {name}, requested: {asked}, used: {before}, limited: {limit}"
    raise status.forbidden(attrs.resource, attrs.name, why)
