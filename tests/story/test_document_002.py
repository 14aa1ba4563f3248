"""The document about simulated GPUs and fallback, walked from its first command to its last, twice.

Every block stands here as it is printed there. What the document promises in words is asserted behind the block.
The first walk goes by `make`, the second by the scripts, with the document's `large` pool pasted into its files.
"""

from __future__ import annotations

import json
import re
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments.waiting import until
from tests.story.document_002_snippets import LARGE_NODE, LARGE_POOL
from tests.story.terminal import EXAMPLE, Terminal

pytestmark = [pytest.mark.kubectl, pytest.mark.timeout(1200)]

SETUP = {
    "make": "make setup",
    "scripts": """\
chmod +x scripts/setup-cluster.sh scripts/configure-mig-profiles.sh
./scripts/setup-cluster.sh
""",
}
DEPLOY = {
    "make": "make deploy-webhook",
    "scripts": """\
cd webhook
chmod +x scripts/*.sh
./scripts/init-go-module.sh
./scripts/build-and-deploy.sh
cd ..
""",
}
COLUMNS = r"""# View MIG resources on nodes
kubectl get nodes -o custom-columns=\
NAME:.metadata.name,\
MIG-1g.10gb:.status.capacity.nvidia\\.com/mig-1g\\.10gb,\
MIG-2g.20gb:.status.capacity.nvidia\\.com/mig-2g\\.20gb
"""
FALLBACKS = r"""# Check which pods were modified by the webhook
kubectl get pods -l app=gpu-test -o custom-columns=\
NAME:.metadata.name,\
FALLBACK:.metadata.annotations.gpu-webhook\\.k8s\\.io/fallback,\
GPU-REQUEST:.spec.containers[0].resources.requests
"""
CERTIFICATES = """\
# Regenerate certificates
cd webhook
./scripts/generate-certs.sh

# Reapply webhook config
kubectl apply -f deploy/04-webhook-config-patched.yaml

# Restart webhook pods
kubectl rollout restart deployment/gpu-webhook -n gpu-webhook
cd ..
"""
SMALL, MEDIUM, LARGE = "gpu-sim-cluster-worker", "gpu-sim-cluster-worker2", "gpu-sim-cluster-worker3"
KEPT, FELL = ("<none>", "map[nvidia.com/mig-2g.20gb:1]"), ("2g.20gb->1g.10gb", "map[nvidia.com/mig-1g.10gb:1]")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    folder = tmp_path / "mig-fallback"
    shutil.copytree(EXAMPLE, folder)
    terminal = Terminal(folder, tmp_path / "home")
    yield terminal
    terminal.run("apportion down --name gpu-sim-cluster")


def test_f01_to_f11_the_document_is_walked_twice(terminal: Terminal) -> None:
    Walk(terminal, by="make").whole()
    paste_large(terminal.folder)
    Walk(terminal, by="scripts", large=True).whole()


class Walk:
    """The document from top to bottom."""

    def __init__(self, terminal: Terminal, *, by: str, large: bool = False) -> None:
        self.terminal = terminal
        self.run = terminal.run
        self.by = by
        self.large = large

    def whole(self) -> None:
        self.set_up()
        self.verify()
        self.test_pod()
        self.test_deployment()
        self.test_job()
        self.exhaustion()
        self.troubleshooting()
        self.certificates()
        self.clean_up()

    # Quick start

    def set_up(self) -> None:
        self.run(SETUP[self.by])
        config = self.terminal.home / ".kube" / "config"
        assert config.stat().st_mode & 0o777 == 0o600
        assert self.run("kubectl config current-context") == "gpu-sim-cluster\n"
        self.run(DEPLOY[self.by])
        self.run(SETUP[self.by])  # can be run again, and changes nothing

    def verify(self) -> None:
        labels = self.run("# Check nodes and their GPU resources\nkubectl get nodes --show-labels")
        assert re.search(rf"{SMALL} .*node-pool=small", labels)
        assert re.search(rf"{MEDIUM} .*node-pool=medium", labels)
        rows = [line.split() for line in self.run(COLUMNS).splitlines()]
        assert rows[0] == ["NAME", "MIG-1g.10gb", "MIG-2g.20gb"]
        assert [SMALL, "28", "<none>"] in rows
        assert [MEDIUM, "4", "12"] in rows
        assert "1/1     Running" in self.run("# Check webhook is running\nkubectl get pods -n gpu-webhook")
        expected = {
            SMALL: {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "28"},
            MEDIUM: {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "4", "nvidia.com/mig-2g.20gb": "12"},
        }
        if self.large:
            expected[LARGE] = {"nvidia.com/gpu": "0", "nvidia.com/mig-7g.70gb": "4"}
        for name, devices in expected.items():
            status = json.loads(self.run(f"kubectl get node {name} -o jsonpath='{{.status}}'"))
            for kind in ("capacity", "allocatable"):
                assert {key: value for key, value in status[kind].items() if "nvidia" in key} == devices
        listed = self.run(f"apportion nvidia-smi --node {MEDIUM} -L")
        assert len(re.findall(r"^GPU \d: NVIDIA-H200 ", listed, re.MULTILINE)) == 4
        assert (listed.count("MIG 2g.20gb"), listed.count("MIG 1g.10gb")) == (12, 4)

    # Testing

    def test_pod(self) -> None:
        self.run("# Deploy a pod requesting 2g.20gb MIG\nkubectl apply -f manifests/test-pods/test-medium-gpu.yaml")
        annotations = self.run("kubectl get pod test-medium-gpu -o yaml | grep -A5 annotations")
        assert "gpu-webhook.k8s.io/fallback" not in annotations
        resources = self.run("kubectl get pod test-medium-gpu -o yaml | grep -A5 resources")
        assert 'nvidia.com/mig-2g.20gb: "1"' in resources
        self.run("kubectl wait pod/test-medium-gpu --for=condition=Ready --timeout=120s")
        assert "MIG 2g.20gb     Device  0: (UUID: MIG-" in self.run("kubectl logs test-medium-gpu")
        self.run("kubectl apply -f manifests/test-pods/test-medium-gpu.yaml")  # D05: a second time

    def test_deployment(self) -> None:
        self.run(
            "# Deploy multiple replicas requesting medium GPUs\n"
            "kubectl apply -f manifests/test-pods/test-deployment.yaml"
        )
        self.terminal.follow("kubectl get pods -l app=gpu-test -w", r"(gpu-test-\S+ +1/1 +Running.*){3}")
        self.await_replicas(3)
        assert self.fallbacks() == [KEPT] * 3

    def test_job(self) -> None:
        self.run("# Create a job with GPU requirement\nkubectl apply -f manifests/test-pods/test-job.yaml")
        self.run("kubectl wait job/test-gpu-job --for=condition=Complete --timeout=120s")
        assert re.search(r"test-gpu-job +Complete +1/1", self.run("# Check job status\nkubectl get jobs"))
        printed = self.run("kubectl logs job/test-gpu-job")
        assert "NVIDIA-SMI" in printed
        assert re.search(r"\|  0    \d   0   0  \| +0MiB / 20480MiB", printed)

    # Webhook behaviour

    def exhaustion(self) -> None:
        self.run("kubectl delete pod test-medium-gpu")
        self.scale(12)
        self.await_replicas(12)
        assert self.fallbacks() == [KEPT] * 12
        self.falls_back()
        self.scale(44)
        self.await_replicas(43)  # the test pod has one of the 32 small devices
        assert sorted(self.fallbacks()) == sorted([KEPT] * 12 + [FELL] * 32)
        self.last_one_waits()
        self.run("kubectl delete pod test-medium-gpu")
        self.await_replicas(44)
        self.scale(8)
        until(lambda: len(self.fallbacks()) == 8, "only eight are left", within=120)

    def falls_back(self) -> None:
        self.run("kubectl apply -f manifests/test-pods/test-medium-gpu.yaml")
        annotations = self.run("kubectl get pod test-medium-gpu -o yaml | grep -A5 annotations")
        assert "gpu-webhook.k8s.io/fallback: 2g.20gb->1g.10gb" in annotations
        resources = self.run("kubectl get pod test-medium-gpu -o yaml | grep -A5 resources")
        assert 'nvidia.com/mig-1g.10gb: "1"' in resources
        assert "nvidia.com/mig-2g.20gb: " not in resources
        self.run("kubectl wait pod/test-medium-gpu --for=condition=Ready --timeout=120s")
        self.run("kubectl apply -f manifests/test-pods/test-medium-gpu.yaml")  # D05: a second time
        pod = "default/test-medium-gpu"
        lines = (
            f"Reviewing pod: {pod}",
            f"Pod {pod} requests 2g.20gb MIG",
            f"2g.20gb not available, falling back to 1g.10gb for pod {pod}",
            f"Applied fallback patch to pod {pod}",
        )
        self.terminal.follow(
            "kubectl logs -n gpu-webhook -l app=gpu-webhook -f", ".*".join(re.escape(f"{line}\n") for line in lines)
        )

    def last_one_waits(self) -> None:
        name = self.run(
            "kubectl get pods -l app=gpu-test --field-selector=status.phase=Pending"
            " -o jsonpath='{.items[*].metadata.name}'"
        )
        assert " " not in name
        told = f"kubectl events --for pod/{name}"
        until(lambda: "Insufficient nvidia.com/mig-1g.10gb" in self.run(told), "it is told why", within=60)
        assert "Insufficient nvidia.com/mig-1g.10gb" in self.run(f"apportion why {name}")

    # Troubleshooting

    def troubleshooting(self) -> None:
        get = "kubectl get mutatingwebhookconfiguration gpu-allocation-webhook"
        assert "failurePolicy" in self.run(f"# Check webhook configuration\n{get} -o yaml")
        bundle = self.run(f"{get} \\\n  -o jsonpath='{{.webhooks[0].clientConfig.caBundle}}' | base64 -d")
        ssl.create_default_context().load_verify_locations(cadata=bundle)
        endpoints = self.run("# Check webhook service endpoints\nkubectl get endpoints -n gpu-webhook")
        assert re.search(r"gpu-webhook +127\.\S+:8443", endpoints)
        annotations = self.run('# Check node annotations\nkubectl get nodes -o yaml | grep -A20 "run.ai/mig.config"')
        assert "- 2g.20gb" in annotations
        running = self.run("# Verify fake-gpu-operator is running\nkubectl get pods -n gpu-operator")
        assert re.search(r"fake-gpu-operator-\S+ +1/1 +Running", running)
        told = self.run("kubectl logs -n gpu-operator -l app.kubernetes.io/name=fake-gpu-operator")
        assert "mig-2g.20gb 12, mig-1g.10gb 4, gpu 0; layout success" in told

    def certificates(self) -> None:
        before = self.run("kubectl get pods -n gpu-webhook -o name")
        self.run(CERTIFICATES)
        self.run("kubectl rollout status -n gpu-webhook deployment/gpu-webhook --timeout=120s")
        gone = f"kubectl wait -n gpu-webhook {before.strip()} --for=delete --timeout=60s"
        self.run(gone)
        assert self.run("kubectl get pods -n gpu-webhook -o name") != before
        self.run("kubectl apply -f manifests/test-pods/test-medium-gpu.yaml")
        self.run("kubectl wait pod/test-medium-gpu --for=condition=Ready --timeout=120s")

    # Clean-up

    def clean_up(self) -> None:
        state = self.terminal.home / ".local" / "state" / "apportion" / "gpu-sim-cluster.json"
        root = Path(json.loads(state.read_text())["root"])
        assert root.exists()
        self.run("# Delete test workloads\nkubectl delete -f manifests/test-pods/")
        self.run("# Delete webhook\nkubectl delete -f webhook/deploy/")
        until(lambda: not self.run("kubectl get pods -n gpu-webhook -o name"), "the webhook is gone", within=60)
        assert "NotFound" in self.run("kubectl get mutatingwebhookconfiguration gpu-allocation-webhook", code=1)
        self.run("# Delete cluster\nkind delete cluster --name gpu-sim-cluster")
        assert not root.exists()
        assert not state.exists()
        assert not (self.terminal.home / ".kube" / "config").exists()
        assert self.run("kind get clusters") == "No kind clusters found.\n"

    # Words of the walk

    def scale(self, replicas: int) -> None:
        self.run(f"kubectl scale deployment gpu-test --replicas={replicas}")

    def await_replicas(self, ready: int) -> None:
        show = "kubectl get deployment gpu-test -o jsonpath='{.status.readyReplicas}'"
        until(lambda: self.run(show) == str(ready), f"{ready} pods are ready", within=180, pause=0.3)

    def fallbacks(self) -> list[tuple[str, str]]:
        header, *rows = (line.split() for line in self.run(FALLBACKS).splitlines())
        assert header == ["NAME", "FALLBACK", "GPU-REQUEST"]
        return [(row[1], row[2]) for row in rows]


def paste_large(folder: Path) -> None:
    for name, text in (("kind-gpu-cluster.yaml", LARGE_NODE), ("fake-gpu-values.yaml", LARGE_POOL)):
        with (folder / "config" / name).open("a") as file:
            file.write(text)
