"""One object has the namespaces, the image and the object names of an installation; modules do not spell them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from apportion.apis.installation import FALLBACK_NAMESPACE_ENV, Installation
from apportion.cli import certs
from apportion.cli.main import app

SOURCE = Path(__file__).parents[2] / "src/apportion"
ALLOWED = {"apis/installation.py", "apis/names.py", "core/node.py"}


def test_r02_the_environment_of_a_process_names_its_installation() -> None:
    assert Installation.from_environment({"APPORTION_NAMESPACE": "", "HOME": "/"}) == Installation()
    found = Installation.from_environment({"APPORTION_NAMESPACE": "gpus", "APPORTION_IMAGE": "registry/apportion"})
    assert found == Installation(namespace="gpus", image="registry/apportion")
    assert found.namespaces == ("gpus", "kai-scheduler", "kai-resource-reservation", "gpu-webhook")


def test_names_of_an_installation_are_taken_from_it() -> None:
    defaults = re.findall(r"names\.([A-Z_]+)", (SOURCE / "apis/installation.py").read_text())
    uses = re.compile(rf"names\.({'|'.join(defaults)})\b|\"(das-operator|gpu-webhook|kai-resource-reservation)\"")
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if uses.search(path.read_text())}
    assert found <= ALLOWED


def test_certs_are_those_of_the_namespace_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def regenerate(namespace: str, *_: object, **__: object) -> bytes:
        asked.append(namespace)
        return b""

    monkeypatch.setattr(certs, "_regenerate", regenerate)
    for environment in ({}, {FALLBACK_NAMESPACE_ENV: ""}, {FALLBACK_NAMESPACE_ENV: "gpus"}):
        assert CliRunner().invoke(app, ["certs"], env=environment).exit_code == 0
    assert asked == [Installation.fallback_namespace, Installation.fallback_namespace, "gpus"]
