"""What a container finds in its environment, and how words refer to it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from pocketkube.kubelet.containers import environment
from pocketkube.kubelet.containers.environment import ConfigError, Surroundings, expand

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u-1", "labels": {"app": "x"}},
    "spec": {
        "nodeName": "node-1",
        "containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}}],
    },
    "status": {"podIP": "127.77.0.9", "hostIP": "127.77.216.1"},
}


class Stored:
    def config_map(self, namespace: str, name: str) -> dict[str, Any] | None:
        return {"data": {"k": "from map", "bad key!": "x"}} if name == "there" else None

    def secret(self, namespace: str, name: str) -> dict[str, Any] | None:
        return {"data": {"k": base64.b64encode(b"hidden").decode()}} if name == "there" else None


def env(*entries: dict[str, Any], sources: tuple[dict[str, Any], ...] = ()) -> dict[str, str]:
    around = Surroundings(POD, Stored(), {"cpu": "64"}, "127.0.0.1", 6443)
    return environment.environment({"name": "c", "env": list(entries), "envFrom": list(sources)}, around)


def field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def test_fields_resources_and_the_api_server() -> None:
    got = env(
        field("IP", "status.podIP"),
        field("APP", "metadata.labels['app']"),
        field("UID", "metadata.uid"),
        field("NODE", "spec.nodeName"),
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "MI", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    )
    assert (
        got.items()
        >= {
            "IP": "127.77.0.9",
            "APP": "x",
            "UID": "u-1",
            "NODE": "node-1",
            "CPU": "2",
            "MI": "2048",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": "6443",
        }.items()
    )


def test_later_variables_may_use_earlier_ones() -> None:
    got = env({"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(NONE)-$$(A)"})
    assert got["B"] == "1-$(NONE)-$(A)"


def test_config_maps_and_secrets_whole_and_by_key() -> None:
    got = env(
        {"name": "M", "valueFrom": {"configMapKeyRef": {"name": "there", "key": "k"}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "there", "key": "k"}}},
        {"name": "O", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k", "optional": True}}},
        sources=(
            {"prefix": "P_", "configMapRef": {"name": "there"}},
            {"secretRef": {"name": "gone", "optional": True}},
        ),
    )
    assert (got["M"], got["S"], got["P_k"]) == ("from map", "hidden", "from map")
    assert "O" not in got
    assert not any("!" in name for name in got)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"configMapKeyRef": {"name": "gone", "key": "k"}}, 'configmap "gone" not found'),
        ({"secretKeyRef": {"name": "there", "key": "no"}}, "couldn't find key no in Secret n/there"),
        ({"fieldRef": {"fieldPath": "status.nothing"}}, "unsupported fieldPath: status.nothing"),
    ],
)
def test_what_is_missing_is_said_as_a_kubelet_says_it(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        env({"name": "X", "valueFrom": entry})


def test_words_are_expanded() -> None:
    assert expand("--listen=$(POD_IP):80", {"POD_IP": "127.0.0.1"}) == "--listen=127.0.0.1:80"
    with pytest.raises(ConfigError, match="missing value for NONE"):
        environment.expand_strictly("$(A)/$(NONE)", {"A": "x"})
