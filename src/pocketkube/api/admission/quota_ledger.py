"""How much of every quota is in use, kept up to date with each change of the store.

Reading is one look-up, so a namespace with a quota and many pods costs no more per pod than one with few. Nothing
happens between the check of a request and its write, so what admission reads here is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from apportion.apis import quantity
from pocketkube.api.admission import pod_resources, quota_usage
from pocketkube.api.storage.store import Bucket, Change, Key, Store, Stored

Obj = dict[str, Any]

QUOTAS = Bucket("", "resourcequotas")


@dataclass
class Account:
    """One quota: what it allows and what is taken of it."""

    spec: Obj
    taken: dict[str, dict[str, str]] = field(default_factory=dict)  # by uid of the object
    totals: dict[str, int] = field(default_factory=dict)
    styles: dict[str, str] = field(default_factory=dict)

    @property
    def hard(self) -> dict[str, str]:
        return dict(self.spec.get("hard") or {})

    @property
    def buckets(self) -> set[Bucket]:
        return {quota_usage.bucket_of_name(name) for name in self.hard}

    def used(self) -> dict[str, str]:
        """As the status shows it: everything that is limited, and how much of it is taken."""
        return {name: pod_resources.text(self.totals.get(name, 0), self.styles.get(name, "")) for name in self.hard}

    def set(self, uid: str, usage: dict[str, str] | None) -> bool:
        """What one object takes from now on; None if it is gone. Answers whether that changed anything."""
        before, hard = self.taken.pop(uid, {}), self.hard
        after = {name: amount for name, amount in (usage or {}).items() if name in hard}
        if after:
            self.taken[uid] = after
            self.styles |= after
        for name in before.keys() | after.keys():
            change = quantity.nanos(after.get(name, "0")) - quantity.nanos(before.get(name, "0"))
            self.totals[name] = self.totals.get(name, 0) + change
        return before != after


class QuotaLedger:
    """The accounts of all quotas; `on_change` is called with namespace and name of each one that changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: dict[Key, Account] = {}
        self._concerned: dict[tuple[Bucket, str], set[Key]] = {}
        self._followed: dict[Bucket, Callable[[], None]] = {}  # how to stop
        self._quotas_of: Counter[Bucket] = Counter()
        self.on_change: Callable[[Key], None] = lambda _: None
        store.listen(QUOTAS, self._quota_changed)
        for stored in store.items(QUOTAS):
            self._open(stored)

    def accounts(self, namespace: str, bucket: Bucket) -> list[tuple[str, Account]]:
        """The quotas of a namespace that count objects of a kind, in the order of their names."""
        keys = self._concerned.get((bucket, namespace), ())
        return [(key.name, self._accounts[key]) for key in sorted(keys)]

    def find(self, namespace: str, name: str) -> Account | None:
        return self._accounts.get(Key(namespace, name))

    def _quota_changed(self, change: Change) -> None:
        if change.type == "DELETED":
            self._close(change.new.key)
            return
        account = self._accounts.get(change.new.key)
        if account is None or account.spec != (change.new.decode().get("spec") or {}):
            self._close(change.new.key)
            self._open(change.new)

    def _open(self, stored: Stored) -> None:
        account = self._accounts[stored.key] = Account(stored.decode().get("spec") or {})
        for bucket in account.buckets:
            self._concerned.setdefault((bucket, stored.key.namespace), set()).add(stored.key)
            self._quotas_of[bucket] += 1
            if bucket not in self._followed:
                self._followed[bucket] = self._store.listen(bucket, partial(self._object_changed, bucket))
            for each in self._store.items(bucket, stored.key.namespace):
                _enter(account, bucket, each)
        self.on_change(stored.key)

    def _close(self, key: Key) -> None:
        account = self._accounts.pop(key, None)
        for bucket in account.buckets if account else ():
            place = (bucket, key.namespace)
            self._concerned.get(place, set()).discard(key)
            if not self._concerned.get(place):
                self._concerned.pop(place, None)
            self._quotas_of[bucket] -= 1
            if not self._quotas_of[bucket]:
                del self._quotas_of[bucket]
                self._followed.pop(bucket)()

    def _object_changed(self, bucket: Bucket, change: Change) -> None:
        for key in tuple(self._concerned.get((bucket, change.new.key.namespace), ())):
            account = self._accounts[key]
            if change.type == "DELETED":
                moved = account.set(change.new.uid, None)
            else:
                moved = _enter(account, bucket, change.new)
            if moved:
                self.on_change(key)


def _enter(account: Account, bucket: Bucket, stored: Stored) -> bool:
    obj = stored.decode()
    counted = quota_usage.concerns(account.spec, bucket, obj)
    return account.set(stored.uid, quota_usage.usage(bucket, obj) if counted else None)
