"""helm on the embedded cluster: a small chart is installed, upgraded, rolled back and removed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.environments import binaries
from tests.environments.embedded import Embedded
from tests.environments.waiting import until

FILES = {
    "Chart.yaml": "{apiVersion: v2, name: small, version: 0.1.0, appVersion: '1'}",
    "values.yaml": "{replicas: 1, colour: red}",
    "crds/things.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.helm.example.io}
spec:
  group: helm.example.io
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}
""",
    "templates/thing.yaml": "{apiVersion: helm.example.io/v1, kind: Thing, metadata: {name: thing}, size: 1}",
    "templates/settings.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: {{ .Values.colour }}}
""",
    "templates/web.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {colour: {{ .Values.colour }}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "busybox:1.36", command: [sleep, "1000"]}]
""",
    "templates/hook.yaml": """
apiVersion: batch/v1
kind: Job
metadata: {name: before, annotations: {helm.sh/hook: "pre-install", helm.sh/hook-delete-policy: hook-succeeded}}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: "busybox:1.36", command: ["true"]}]}}
""",
}


class Helm:
    def __init__(self, program: Path, cluster: Embedded, namespace: str, folder: Path) -> None:
        self._program = program
        self._namespace = namespace
        homes = {f"HELM_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        self._environment = os.environ | homes | {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder)}

    def __call__(self, *args: str) -> str:
        command = [str(self._program), *args, "--namespace", self._namespace]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=self._environment)
        assert not done.returncode, f"helm {' '.join(args)}: {done.stderr}"
        return done.stdout


@pytest.fixture
def helm(embedded_cluster: Embedded, namespace: str, tmp_path: Path) -> Helm:
    program = binaries.locate("helm")
    if program is None:
        pytest.skip("helm is missing: run `.venv/bin/python tools/real/build.py helm`")
    return Helm(program, embedded_cluster, namespace, tmp_path)


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "small" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "small"


def test_helm_installs_upgrades_rolls_back_and_removes_a_chart(
    helm: Helm, chart: Path, embedded_cluster: Embedded, namespace: str
) -> None:
    api = embedded_cluster.api
    inside = f"/api/v1/namespaces/{namespace}"
    try:
        helm("install", "first", str(chart), "--wait", "--timeout", "60s")
        assert api.get(f"{inside}/configmaps/settings")["data"] == {"colour": "red"}
        assert api.get(f"/apis/helm.example.io/v1/namespaces/{namespace}/things/thing")["size"] == 1
        assert not api.exists(f"/apis/batch/v1/namespaces/{namespace}/jobs/before")
        helm("upgrade", "first", str(chart), "--set", "replicas=2,colour=blue", "--wait", "--timeout", "60s")
        web = api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/web")
        assert (web["status"]["readyReplicas"], web["spec"]["replicas"]) == (2, 2)
        assert api.get(f"{inside}/configmaps/settings")["data"] == {"colour": "blue"}
        helm("rollback", "first", "1", "--wait", "--timeout", "60s")
        assert api.get(f"{inside}/configmaps/settings")["data"] == {"colour": "red"}
        (release,) = json.loads(helm("list", "-o", "json"))
        assert (release["name"], release["revision"], release["status"]) == ("first", "3", "deployed")
        helm("uninstall", "first", "--wait", "--timeout", "60s")
        assert not api.exists(f"{inside}/configmaps/settings")
        until(lambda: not api.items(f"{inside}/pods"), "the pods of the chart are gone")
    finally:
        api.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.helm.example.io")
