"""What kubectl prints about kinds and components."""

from __future__ import annotations

import re

import pytest

from tests.environments.cluster import Cluster

pytestmark = pytest.mark.kubectl


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("pod.spec.restartPolicy", ["Always", "Never", "OnFailure"]),
        ("service.spec.type", ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
        ("endpointslice.addressType", ["FQDN", "IPv4", "IPv6"]),
        ("ingress.spec.rules.http.paths.pathType", ["Exact", "ImplementationSpecific", "Prefix"]),
        ("priorityclass.preemptionPolicy", ["Never", "PreemptLowerPriority"]),
    ],
)
def test_explain_names_the_values_of_an_enumeration(any_cluster: Cluster, path: str, values: list[str]) -> None:
    said = any_cluster.kubectl("explain", path)
    listed = said.partition("ENUM:\n")[2].partition("\n\n")[0]
    assert listed.split() == values
    described = said.partition("Possible enum values:\n")[2]
    assert re.findall(r'^ +- `"(\w+)"`', described, re.MULTILINE) == values


def test_explain_names_none_where_a_field_is_open(any_cluster: Cluster) -> None:
    assert "ENUM" not in any_cluster.kubectl("explain", "mutatingwebhookconfiguration.webhooks.reinvocationPolicy")
    modes = any_cluster.kubectl("explain", "pvc.spec.accessModes")
    assert "Possible enum values" not in modes


def test_the_components_are_healthy(any_cluster: Cluster) -> None:
    said = any_cluster.kubectl("get", "componentstatuses", check=False).splitlines()
    assert said.count("Warning: v1 ComponentStatus is deprecated in v1.19+") == 1
    lines = sorted(line.split() for line in said if not line.startswith("Warning"))
    assert lines == [
        ["NAME", "STATUS", "MESSAGE", "ERROR"],
        ["controller-manager", "Healthy", "ok"],
        ["etcd-0", "Healthy", "ok"],
        ["scheduler", "Healthy", "ok"],
    ]
    refused = any_cluster.kubectl("get", "cs", "--watch", check=False)
    assert 'watch is not supported on resources of kind "componentstatuses"' in refused
    assert "does not allow this method" in any_cluster.kubectl("delete", "cs", "scheduler", check=False)
