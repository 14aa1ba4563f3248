"""ConfigMaps and Secrets, as the kubelets read them."""

from __future__ import annotations

from typing import Any

from apportion.apis.kinds import CONFIG_MAPS, SECRETS
from pocketkube.informers import Informers

Json = dict[str, Any]


class StoredSettings:
    """The newest known state, from the shared informers."""

    def __init__(self, informers: Informers) -> None:
        self._config_maps = informers.of(CONFIG_MAPS)
        self._secrets = informers.of(SECRETS)

    def config_map(self, namespace: str, name: str) -> Json | None:
        return self._config_maps.get(name, namespace)

    def secret(self, namespace: str, name: str) -> Json | None:
        return self._secrets.get(name, namespace)
