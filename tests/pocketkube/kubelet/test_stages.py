"""The pod lifecycle as data: each golden file has container events, and what the pod does and reports.

spec:      the pod
story:     moments; each may end a container (`ends: {name: code}`), start it (`starts: [...]`) or mark it ready
expect:    after each moment: phase, what to start and stop, which conditions hold, states
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pocketkube.kubelet.containers.backoff import BackOff, BackOffSettings
from pocketkube.kubelet.pods import stages, status
from pocketkube.kubelet.pods.container_records import PodRecord, Running, Terminated, Waiting, records_of

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.yaml"))


class Life:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1}, "spec": spec}
        self.record: PodRecord = records_of(self.pod, 0.0)
        self.record.sandbox_ready = True
        self.record.ip, self.record.host_ip = "127.77.0.1", "127.77.216.1"
        self.backoffs = {name: BackOff(BackOffSettings()) for name in self.record.containers}

    def happen(self, moment: dict[str, Any]) -> None:
        now = float(moment["at"])
        for name in moment.get("starts", []):
            each = self.record.containers[name]
            if each.ended is not None:
                each.last, each.restarts = each.ended, each.restarts + 1
            each.state, each.container_id = Running(now), f"id-{name}"
            each.started = each.ever_started = True
        for name in moment.get("ready", []):
            self.record.containers[name].ready = True
        for name, code in moment.get("ends", {}).items():
            each = self.record.containers[name]
            assert isinstance(each.state, Running)
            each.state = Terminated(code, "Error" if code else "Completed", each.state.started_at, now, f"id-{name}")
            each.ready = each.started = False
            each.not_before = self.backoffs[name].after_exit(now, now)

    def seen(self, now: float) -> dict[str, Any]:
        step = stages.next_step(self.record, self.pod["spec"].get("restartPolicy", "Always"), now)
        for name in step.backing_off:
            each = self.record.containers[name]
            if isinstance(each.state, Terminated):
                each.last, each.state = each.state, Waiting("CrashLoopBackOff")
        told = status.pod_status(self.pod, self.record, now)
        seen: dict[str, Any] = {"phase": told["phase"]}
        if step.start:
            seen["start"] = list(step.start)
        if step.stop:
            seen["stop"] = list(step.stop)
        if step.backing_off:
            seen["waits"] = {name: self.record.containers[name].not_before - now for name in step.backing_off}
        if step.finished:
            seen["finished"] = True
        seen["holds"] = sorted(each["type"] for each in told["conditions"] if each["status"] == "True")
        return seen


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    story = yaml.safe_load(path.read_text())
    life = Life(story["spec"])
    for moment in story["story"]:
        life.happen(moment)
        assert life.seen(float(moment["at"])) == moment["expect"], f"at {moment['at']}"


def test_backoff_is_a_kubelets_at_once_then_doubling_up_to_a_limit_and_reset_after_a_stable_run() -> None:
    backoff = BackOff(BackOffSettings(initial=10, maximum=300, forget_after=600))
    waits, now = [], 0.0
    for _ in range(8):
        at = backoff.after_exit(now, now)
        waits.append(at - now)
        now = at
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.after_exit(now + 601, now + 601) == now + 601


def test_a_transition_time_moves_only_with_its_status() -> None:
    life = Life({"containers": [{"name": "a", "image": "x"}]})
    before = status.pod_status(life.pod, life.record, 10.0)["conditions"]
    after = status.pod_status(life.pod, life.record, 20.0)["conditions"]
    assert before == after
    life.happen({"at": 30, "starts": ["a"], "ready": ["a"]})
    changed = {each["type"]: each for each in status.pod_status(life.pod, life.record, 30.0)["conditions"]}
    assert changed["Ready"]["lastTransitionTime"] == "1970-01-01T00:00:30Z"
    assert changed["Initialized"]["lastTransitionTime"] == "1970-01-01T00:00:10Z"


def test_container_states_read_as_kubectl_expects_them() -> None:
    life = Life({"restartPolicy": "Never", "containers": [{"name": "a", "image": "docker.io/x/y:1"}]})
    (waiting,) = status.pod_status(life.pod, life.record, 0.0)["containerStatuses"]
    assert waiting["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert "containerID" not in waiting
    life.happen({"at": 1, "starts": ["a"]})
    life.happen({"at": 2, "ends": {"a": 137}})
    (ended,) = status.pod_status(life.pod, life.record, 2.0)["containerStatuses"]
    assert ended["state"]["terminated"]["exitCode"] == 137
    assert ended["state"]["terminated"]["startedAt"] == "1970-01-01T00:00:01Z"
    assert ended["imageID"].startswith("docker.io/x/y@sha256:")


def test_a_pod_that_is_stopped_ends_by_its_exit_codes() -> None:
    life = Life({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]})
    life.happen({"at": 1, "starts": ["a", "b"]})
    life.happen({"at": 2, "ends": {"a": 0, "b": 143}})
    assert status.pod_status(life.pod, life.record, 2.0)["phase"] == "Running"
    assert status.pod_status(life.pod, life.record, 2.0, final=True)["phase"] == "Failed"
