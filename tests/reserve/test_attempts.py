"""How often the command tries what (G05): without processes and without waiting."""

from __future__ import annotations

import pytest

from apportion.reserve import attempts, device, own_pod
from apportion.reserve.errors import Misconfigured, NotReserved, Unreachable

NAMED = {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}


class Attempts:
    """Answers in the place of the API server, one after the other; the last one for ever."""

    def __init__(self, *answers: NotReserved | None) -> None:
        self._answers = list(answers)
        self.slept: list[float] = []

    def write(self, gpu: str, environment: object) -> None:
        assert gpu == "GPU-1"
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is not None:
            raise answer


def test_g05_an_unreachable_server_is_tried_for_ever_with_longer_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Attempts(*[Unreachable("away")] * 12, None)
    monkeypatch.setattr(own_pod, "write", answers.write)
    assert attempts.reserve(NAMED, answers.slept.append)
    assert answers.slept == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, *[30.0] * 6]


def test_g05_what_somebody_must_change_ends_the_container_after_some_attempts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = Attempts(Misconfigured("not\nallowed"))
    monkeypatch.setattr(own_pod, "write", answers.write)
    assert not attempts.reserve(NAMED, answers.slept.append)
    assert answers.slept == [10.0] * 5
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[-1].endswith(r"ERROR reserve gives up after 6 attempts: not\nallowed")


@pytest.mark.parametrize("named", ["", "void", "none", "all", "0", "MIG-1", "GPU-1,GPU-2", "nvidia.com/gpu=GPU-1"])
def test_g05_only_a_single_uuid_in_the_environment_is_trusted(named: str) -> None:
    assert device.find({"NVIDIA_VISIBLE_DEVICES": named}, lambda: ["GPU-9"]) == "GPU-9"


@pytest.mark.parametrize(("found", "told"), [([], "no GPU"), (["GPU-1", "GPU-2"], r"2 GPUs .*GPU-1, GPU-2")])
def test_g05_one_gpu_is_needed(found: list[str], told: str) -> None:
    with pytest.raises(Misconfigured, match=told):
        device.find({}, lambda: found)
