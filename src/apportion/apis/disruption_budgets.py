"""PodDisruptionBudgets: the fields that decide about evictions. For reading only."""

from __future__ import annotations

import msgspec

from apportion.apis.meta import ObjectMeta, Wire
from apportion.apis.selectors import LabelSelector


class PodDisruptionBudgetSpec(Wire):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire):
    disruptions_allowed: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)
