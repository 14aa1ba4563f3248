"""What this process has decided and the API server has not shown yet.

A plan is assumed the moment it is made: its pod and its slices count as there. Each assumption ends when an informer
shows the object (confirmed), when the commit failed and the server has no such object (`forget`), or when it was
not seen for too long and a look at the server says that it is not there (`drop_*`).
"""

from __future__ import annotations

from apportion.core.plans import Plan
from apportion.view.claims import Claims
from apportion.view.pods import Pods


class Assumptions:
    def __init__(self, pods: Pods, claims: Claims) -> None:
        self._pods, self._claims = pods, claims

    def assume(self, plan: Plan) -> None:
        """`decide` has entered the plan into the fleet: remember that nobody has confirmed it yet."""
        for claim in plan.claims:
            self._claims.pending.begin(claim.name)
        for bind in plan.binds:
            self._pods.pending.begin(bind.uid)

    def written(self, plan: Plan) -> None:
        """The plan is on the server; from now on the informers have to show it soon."""
        for claim in plan.claims:
            if claim.name in self._claims.pending:
                self._claims.pending.written(claim.name)
        for bind in plan.binds:
            if bind.uid in self._pods.pending:
                self._pods.pending.written(bind.uid)

    def forget(self, plan: Plan, existing: set[str]) -> None:
        """The plan was not carried out; only the claims named in `existing` are on the server."""
        for bind in plan.binds:
            self._pods.drop(bind.uid)
        for claim in plan.claims:
            if claim.name not in existing:
                self._claims.drop(claim.name)
            elif claim.name in self._claims.pending:
                self._claims.pending.written(claim.name)

    def drop_pod(self, uid: str) -> None:
        self._pods.drop(uid)

    def drop_claim(self, name: str) -> None:
        self._claims.drop(name)

    def unconfirmed(self, older_than: float) -> tuple[list[str], list[str]]:
        """Pods (uids) and claims (names) that were written that many seconds ago and not seen since."""
        return self._pods.pending.overdue(older_than), self._claims.pending.overdue(older_than)
