"""Admission policies: their status says which generation was looked at.

Expressions are checked when a policy is registered; the fields of objects are not checked against the types that a
policy matches, so that `typeChecking` never has a warning.
"""

from __future__ import annotations

from apportion.apis.kinds import Kind
from pocketkube.controllers.controller import Key, Reconciler, deleting

POLICIES = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)


class AdmissionPolicyStatus(Reconciler):
    name = "admission-policies"
    component = "validatingadmissionpolicy-status-controller"

    def subscribe(self) -> None:
        self.follow(POLICIES)

    async def reconcile(self, key: Key) -> float | None:
        policy = self.informers.of(POLICIES).get(key[1], key[0])
        if policy is not None and not deleting(policy):
            generation = policy["metadata"].get("generation")
            await self.set_status(POLICIES, policy, {"observedGeneration": generation, "typeChecking": {}})
        return None
