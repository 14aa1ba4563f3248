"""One object has the namespaces, the image and the object names of an installation; modules do not spell them."""

from __future__ import annotations

import re
from pathlib import Path

from apportion.apis.installation import Installation

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
