"""Tells what is wrong with the Config: an event on it, and a line in the log."""

from __future__ import annotations

import logging

from apportion.apis.kinds import KAI_CONFIGS
from apportion.cluster.events import Recorder, Regarding
from apportion.view.groups.grouper_config import GrouperConfig

log = logging.getLogger(__name__)


class ConfigEvents:
    def __init__(self, config: GrouperConfig, recorder: Recorder) -> None:
        self._config, self._recorder = config, recorder
        config.on_change(self._changed)

    def _changed(self) -> None:
        config = self._config.config
        if config is None:
            return
        meta = config.metadata
        regarding = Regarding(KAI_CONFIGS.api_version, KAI_CONFIGS.kind, meta.name, uid=meta.uid)
        for problem in self._config.problems:
            text = f"spec.podGrouper.{problem}; this row is not used"
            log.warning("Config %s: %s", meta.name, text)
            self._recorder.warn(regarding, problem.code, text)
