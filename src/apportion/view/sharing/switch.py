"""Whether pods can share GPUs, as the Config `kai-config` says (G01)."""

from __future__ import annotations

from apportion.apis import names
from apportion.apis.custom_resources.kai_config import Config
from apportion.core.cluster_changes import Happened
from apportion.core.fleet import Fleet
from apportion.view.accelerators import Accelerators
from apportion.view.change_log import ChangeLog


class SharingSwitch:
    """Off until a Config says otherwise."""

    def __init__(self, fleet: Fleet, changes: ChangeLog, accelerators: Accelerators) -> None:
        self._fleet, self._changes, self._accelerators = fleet, changes, accelerators
        fleet.sharing = False

    def changed(self, old: Config | None, new: Config | None) -> None:
        subject = new or old
        assert subject is not None
        if subject.metadata.name != names.KAI_CONFIG_OBJECT:
            return
        on = new is not None and new.spec.admission.gpu_sharing
        if on != self._fleet.sharing:
            self._fleet.sharing = on
            self._accelerators.refresh_slots()
            self._changes.note(Happened.EVERYTHING)
