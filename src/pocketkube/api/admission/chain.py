"""AdmissionChain: the built-in plugins and the webhooks that users register, around every write.

    built-in plugins -> mutating webhooks, one after the other by the names of their configurations
        (-> once more, if one of them changed the object: plugins, and the webhooks that ask for it)
    validation (elsewhere)
    built-in checks -> admission policies -> validating webhooks, all at the same time -> quotas

A webhook that cannot be called or answers nonsense fails the request or is passed over, as its failure
policy says; a patch that does not apply always fails it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from dataclasses import dataclass
from typing import Any

import msgspec

from apportion.cluster.certificates import KeyPair
from pocketkube.api import status
from pocketkube.api.access.rbac import Rbac
from pocketkube.api.admission import admission_request, match_conditions
from pocketkube.api.admission.builtin_plugins import Builtin
from pocketkube.api.admission.policies.policies import Policies
from pocketkube.api.admission.quota_ledger import QuotaLedger
from pocketkube.api.admission.webhook_client import CallError, WebhookClient
from pocketkube.api.admission.webhook_matching import MUTATING, VALIDATING, Hook, Hooks
from pocketkube.api.content import decoding, defaults
from pocketkube.api.expressions.authorization import Authorizer
from pocketkube.api.expressions.evaluation import EvaluationError
from pocketkube.api.patches import json_patch
from pocketkube.api.patches.errors import PatchError
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.request_attributes import Attributes
from pocketkube.api.storage.store import Store

Obj = dict[str, Any]

REVIEW_VERSION = "admission.k8s.io/v1"
_LOWEST_FAILURE = 400


class AdmissionChain:
    """The whole chain; `close` ends the connections to webhooks."""

    def __init__(
        self, store: Store, registry: Registry, authorizer: Rbac | None = None, *, with_controllers: bool = False
    ) -> None:
        self._authorizer = authorizer
        self._builtin = Builtin(store, authorizer, with_controllers=with_controllers)
        self._mutating = Hooks(store, registry, MUTATING)
        self._validating = Hooks(store, registry, VALIDATING)
        self._policies = Policies(store, registry, authorizer)
        self._client = WebhookClient(store)

    @property
    def quotas(self) -> QuotaLedger:
        return self._builtin.quotas

    def authenticate_to_webhooks(self, pair: KeyPair) -> None:
        """Present this client certificate to webhooks that ask for one."""
        self._client.certificate = pair

    async def close(self) -> None:
        await self._client.close()

    async def mutate(self, attrs: Attributes, obj: Obj) -> Obj:
        """The object after everybody who may change it; raises ApiStatus."""
        await self._builtin.mutate(attrs, obj)
        concerned = self._mutating.concerned(attrs)
        if not concerned:
            return obj
        before = obj
        stale: set[int] = set()  # webhooks that saw an object which others changed later
        called: list[int] = []
        for index, (hook, resource) in enumerate(concerned):
            changed = await self._mutate_by(hook, resource, attrs, obj)
            if changed is not None and changed != obj:
                stale.update(called)
                obj = changed
            called.append(index)
        if obj == before:
            return obj
        await self._builtin.mutate(attrs, obj)
        for index, (hook, resource) in enumerate(concerned):
            if index in stale and hook.reinvoke:
                obj = await self._mutate_by(hook, resource, attrs, obj) or obj
        return obj

    async def validate(self, attrs: Attributes, obj: Obj | None, old: Obj | None) -> None:
        """Refuses by raising ApiStatus."""
        await self._builtin.validate(attrs, obj, old)
        self._policies.validate(attrs, obj, old)
        concerned = self._validating.concerned(attrs)
        calls = (self._validate_by(hook, resource, attrs, obj, old) for hook, resource in concerned)
        for outcome in await asyncio.gather(*calls, return_exceptions=True) if concerned else ():
            if isinstance(outcome, BaseException):
                raise outcome
        self._builtin.check_quotas(attrs, obj, old)

    async def _mutate_by(self, hook: Hook, resource: Resource, attrs: Attributes, obj: Obj) -> Obj | None:
        """The changed object, or None if the webhook has nothing to say about it."""
        if not self._mutating.selected(hook, attrs, obj, attrs.old):
            return None
        response = await self._ask(hook, admission_request.build(resource, attrs, obj, attrs.old), attrs)
        if response is None or not response.operations:
            return None
        try:
            patched = json_patch.apply(admission_request.in_version(resource, obj), response.operations)
        except (PatchError, RecursionError) as problem:
            raise status.internal(str(problem)) from None
        return _settled(attrs, hook, patched)

    async def _validate_by(
        self, hook: Hook, resource: Resource, attrs: Attributes, obj: Obj | None, old: Obj | None
    ) -> None:
        if self._validating.selected(hook, attrs, obj, old):
            await self._ask(hook, admission_request.build(resource, attrs, obj, old), attrs, may_patch=False)

    async def _ask(self, hook: Hook, request: Obj, attrs: Attributes, *, may_patch: bool = True) -> Answer | None:
        """The answer of a webhook that allows the request; None if it was not asked or is passed over."""
        if not self._conditions_hold(hook, request, attrs):
            return None
        if attrs.dry_run and not hook.dry_run_safe:
            raise status.bad_request(f"admission webhook {_quoted(hook.name)} does not support dry run")
        review = {"kind": "AdmissionReview", "apiVersion": REVIEW_VERSION, "request": request}
        try:
            answer = Answer.read(await self._client.post(hook.client, review, hook.timeout), request["uid"], may_patch)
        except CallError as problem:
            if hook.ignore_failures:
                return None
            raise status.internal(f"failed calling webhook {_quoted(hook.name)}: {problem}") from None
        for warning in answer.warnings:
            attrs.warn(str(warning))
        if not answer.allowed:
            raise _denial(hook, answer.status)
        return answer

    def _conditions_hold(self, hook: Hook, request: Obj, attrs: Attributes) -> bool:
        if not hook.conditions:
            return True
        authorizer = Authorizer.of(self._authorizer, attrs)
        values = {"object": request["object"], "oldObject": request["oldObject"], "request": request}
        try:
            return match_conditions.hold(hook.conditions, {**values, "authorizer": authorizer})
        except EvaluationError as problem:
            if hook.ignore_failures:
                return False
            raise status.forbidden(attrs.resource, attrs.name, str(problem)) from None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a webhook said."""

    allowed: bool
    status: Obj
    warnings: list[Any]
    operations: list[Any]

    @classmethod
    def read(cls, review: Obj, uid: str, may_patch: bool) -> Answer:  # noqa: FBT001  the two kinds of webhook
        """Raises CallError if the review is not what it must be."""
        response = review.get("response")
        if not isinstance(response, dict):
            raise _bad_answer("webhook response was absent")
        if response.get("uid") != uid:
            raise _bad_answer(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
        if review.get("kind") != "AdmissionReview" or review.get("apiVersion") != REVIEW_VERSION:
            got = f"{review.get('apiVersion') or ''}, Kind={review.get('kind') or ''}"
            raise _bad_answer(f"expected webhook response of {REVIEW_VERSION}, Kind=AdmissionReview, got {got}")
        allowed, warnings, given = response.get("allowed", False), response.get("warnings"), response.get("status")
        if not isinstance(allowed, bool) or not isinstance(warnings or [], list) or not isinstance(given or {}, dict):
            raise _bad_answer("allowed must be a bool, warnings a list and status an object")
        return cls(allowed, given or {}, warnings or [], _operations(response, may_patch=may_patch))


def _operations(response: Obj, *, may_patch: bool) -> list[Any]:
    patch, kind = response.get("patch"), response.get("patchType")
    if not may_patch and (patch or kind):
        raise _bad_answer(f"validating webhook may not return response.{'patch' if patch else 'patchType'}")
    if patch and not kind:
        raise _bad_answer("webhook returned response.patch but not response.patchType")
    if kind and not patch:
        raise _bad_answer("webhook returned response.patchType but not response.patch")
    if not patch:
        return []
    if kind != "JSONPatch":
        raise _bad_answer(f'webhook returned invalid response.patchType of "{kind}"')
    try:
        return msgspec.json.decode(base64.b64decode(patch, validate=True), type=list[Any])
    except (binascii.Error, msgspec.DecodeError, RecursionError, TypeError, ValueError) as problem:
        raise CallError(f"received undecodable patch in webhook response: {problem}") from None


def _settled(attrs: Attributes, hook: Hook, patched: Any) -> Obj:
    """A patched object, read and completed as if a user had sent it."""
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata") or {}, dict):
        raise status.internal(f"webhook {_quoted(hook.name)} sent a patch that leaves no object")
    obj: Obj = patched
    if attrs.subresource and obj.get("kind") != attrs.resource.kind:
        return obj
    obj["apiVersion"], obj["kind"] = attrs.resource.api_version, attrs.resource.kind
    try:
        obj, _ = decoding.canonical(attrs.resource, obj)
    except status.ApiStatus as problem:
        raise status.internal(f"webhook {_quoted(hook.name)} sent a bad patch: {problem.message}") from None
    obj.setdefault("metadata", {})
    defaults.apply(attrs.resource, obj)
    return obj


def _bad_answer(why: str) -> CallError:
    return CallError(f"received invalid webhook response: {why}")


def _denial(hook: Hook, given: Obj) -> status.ApiStatus:
    code = given.get("code")
    code = code if isinstance(code, int) and code >= _LOWEST_FAILURE else _LOWEST_FAILURE
    reason = str(given.get("reason") or "")
    why = str(given.get("message") or reason)
    message = f"admission webhook {_quoted(hook.name)} denied the request"
    message += f": {why}" if why else " without explanation"
    details = given.get("details")
    return status.ApiStatus(code, reason, message, details if isinstance(details, dict) else None)


def _quoted(text: str) -> str:
    return f'"{text}"'
