"""The settings of sharing that can change while the binder runs: from Config kai-config and DASOperator. Rule G07."""

from __future__ import annotations

import logging

from apportion.apis import names
from apportion.apis.custom_resources.kai_config import BinderConfig
from apportion.apis.installation import Installation
from apportion.binder.informers import Informers

log = logging.getLogger(__name__)

ALLOCATION_SECONDS = 40.0
RUNTIME_CLASS = "nvidia"  # that of NVIDIA's container toolkit


class SharingConfig:
    """Asked at each use."""

    def __init__(self, informers: Informers, installation: Installation) -> None:
        self._informers = informers
        self._installation = installation
        self._missing = ""

    @property
    def allocation_seconds(self) -> float:
        """How long a reservation pod may take to get its GPU."""
        return float(self._binder.resource_reservation.allocation_timeout) or ALLOCATION_SECONDS

    @property
    def cdi_enabled(self) -> bool:
        return self._binder.cdi_enabled

    @property
    def runtime_class(self) -> str:
        """Of reservation pods; empty: none. The API server refuses pods with one that does not exist."""
        wanted = self._binder.resource_reservation.runtime_class_name
        if wanted is None:
            wanted = "" if self._emulated else RUNTIME_CLASS
        if not wanted or self._informers.runtime_classes.get(wanted) is not None:
            self._missing = ""
            return wanted
        if self._missing != wanted:
            log.warning("RuntimeClass %s does not exist: GPU reservation pods are created without it", wanted)
        self._missing = wanted
        return ""

    @property
    def _binder(self) -> BinderConfig:
        config = self._informers.configs.get(names.KAI_CONFIG_OBJECT)
        return config.spec.binder if config is not None else BinderConfig()

    @property
    def _emulated(self) -> bool:
        installation = self._installation
        operator = self._informers.operators.get(installation.operator_object, installation.namespace)
        return operator is not None and operator.spec.emulated_mode == "enabled"
