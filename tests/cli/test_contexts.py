"""The kubeconfig of bare kubectl: our context goes in and comes out, and nothing else is touched (F01, F10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion.cli import contexts
from pocketkube import kubeconfig

SERVER = "https://127.0.0.1:1"
OURS = kubeconfig.content(name="sim", server=SERVER, ca=b"ca", token="t")
OTHER: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "preferences": {},
    "clusters": [{"name": "work", "cluster": {"server": "https://work", "proxy-url": "http://proxy"}}],
    "users": [{"name": "me", "user": {"exec": {"command": "login"}}}],
    "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me", "namespace": "team"}}],
    "current-context": "work",
}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_f01_a_context_is_added_and_selected_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(OTHER))
    assert contexts.select(path, OURS) == "work"
    merged = read(path)
    assert merged["current-context"] == "sim"
    assert [entry["name"] for entry in merged["contexts"]] == ["work", "sim"]
    assert merged["clusters"][0] == OTHER["clusters"][0]
    assert path.stat().st_mode & 0o777 == 0o600
    contexts.select(path, OURS)  # again: nothing twice
    assert len(read(path)["clusters"]) == 2
    contexts.remove(path, "sim", SERVER, "work")
    assert read(path) == OTHER


def test_f10_a_file_that_was_ours_alone_is_gone_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config"
    contexts.select(path, OURS)
    contexts.remove(path, "sim", SERVER)
    assert list((tmp_path / "new").iterdir()) == []
    contexts.remove(path, "sim", SERVER)


def test_f10_a_context_that_was_chosen_meanwhile_stays_chosen(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(OTHER))
    contexts.select(path, OURS)
    path.write_text(path.read_text().replace("current-context: sim", "current-context: work"))
    contexts.remove(path, "sim", SERVER, "gone")
    assert read(path)["current-context"] == "work"


def test_f10_a_context_of_before_that_is_gone_is_not_selected(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(OTHER))
    contexts.select(path, OURS)
    contexts.remove(path, "sim", SERVER, "no-more")
    assert read(path)["current-context"] == ""


@pytest.mark.parametrize("text", ["{", "just a text"])
def test_f01_a_broken_kubeconfig_is_named_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(contexts.ContextError, match="KUBECONFIG"):
        contexts.select(path, OURS)
    assert path.read_text() == text
    assert [entry.name for entry in tmp_path.iterdir()] == ["config"]


def test_f01_the_lock_of_another_program_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "LOCK_SECONDS", 0.2)
    path = tmp_path / "config"
    (tmp_path / "config.lock").touch()
    with pytest.raises(contexts.ContextError, match=r"config\.lock"):
        contexts.select(path, OURS)
    assert not path.exists()


def test_f01_the_file_is_the_one_that_kubectl_writes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert contexts.default_path() == tmp_path / ".kube" / "config"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    assert contexts.default_path() == tmp_path / "a"
