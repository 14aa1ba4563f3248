"""`up` and `down` change only what is theirs: clusters, kubeconfigs and folders of others stay as they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from apportion.cli import cluster_files

SECONDS = 60


class Shell:
    """Commands as a user calls them, with a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("APPORTION_", "KUBE"))}
        self.environment = kept | {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "apportion", *words],
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "apportion", *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def up(self, name: str, *words: str, **environment: str) -> cluster_files.ClusterState:
        made = self.run("up", "--detach", "--bare", "--nodes", "0", "--name", name, *words, **environment)
        assert made.returncode == 0, made.stderr
        return self.state(name)

    def state(self, name: str) -> cluster_files.ClusterState:
        found = self.read(name)
        assert found is not None
        return found

    def read(self, name: str) -> cluster_files.ClusterState | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(self.home / "state"))
            return cluster_files.read(name)

    def left(self) -> list[str]:
        """Files of clusters, except logs."""
        return sorted(path.name for path in (self.home / "state" / "apportion").iterdir() if path.suffix != ".log")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    folder = tmp_path / "state" / "apportion"
    for path in folder.glob("*.json") if folder.is_dir() else ():
        made.run("down", "--name", path.stem)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_x01_down_ends_the_cluster_that_kubeconfig_names_and_no_other(shell: Shell) -> None:
    meant, other = shell.up("meant"), shell.up("apportion")
    refused = shell.run("down", "--name", "apportion", KUBECONFIG=meant.kubeconfig)
    assert refused.returncode == 2
    assert "'meant'" in refused.stderr
    assert "nothing is stopped" in refused.stderr
    assert (meant.alive, other.alive) == (True, True)

    strange = shell.home / "production"
    strange.write_text(yaml.safe_dump({"clusters": [{"name": "p", "cluster": {"server": "https://p"}}]}))
    refused = shell.run("down", KUBECONFIG=str(strange))
    assert refused.returncode == 2
    assert "does not select a cluster of `apportion up`" in refused.stderr
    assert (meant.alive, other.alive) == (True, True)

    stopped = shell.run("down", KUBECONFIG=meant.kubeconfig)
    assert (stopped.returncode, stopped.stdout) == (0, "cluster 'meant' stopped\n")
    assert (meant.alive, other.alive) == (False, True)
    again = shell.run("down", KUBECONFIG=meant.kubeconfig)
    assert again.returncode == 2, "its kubeconfig is gone, and another cluster runs"
    assert other.alive
    assert shell.run("down", "--name", "apportion", KUBECONFIG=meant.kubeconfig).returncode == 0
    assert not other.alive
    assert shell.left() == []


def test_f10_contexts_that_were_there_before_stay(shell: Shell) -> None:
    entry = {"name": "mine", "cluster": {"server": "https://production"}}
    before = {"apiVersion": "v1", "kind": "Config", "clusters": [entry], "users": [], "contexts": []}
    kubeconfig = shell.home / ".kube" / "config"
    kubeconfig.parent.mkdir()
    kubeconfig.write_text(yaml.safe_dump(before))
    refused = shell.run("up", "--detach", "--bare", "--nodes", "0", "--select", "--name", "mine")
    assert refused.returncode == 2
    assert "already has an entry 'mine' under clusters" in refused.stdout + refused.stderr
    assert yaml.safe_load(kubeconfig.read_text()) == before
    for target in (kubeconfig, shell.home):
        refused = shell.run("up", "--bare", "--nodes", "0", "--kubeconfig", str(target))
        assert refused.returncode == 2, refused.stderr
        assert "--kubeconfig" in refused.stderr
    assert yaml.safe_load(kubeconfig.read_text()) == before

    shell.up("sim", "--select")
    changed = yaml.safe_load(kubeconfig.read_text())
    assert changed["current-context"] == "sim"
    next(each for each in changed["clusters"] if each["name"] == "sim")["cluster"]["server"] = "https://moved"
    kubeconfig.write_text(yaml.safe_dump(changed))
    assert shell.run("down", "--name", "sim").returncode == 0
    assert yaml.safe_load(kubeconfig.read_text()) == changed, "somebody made it an entry of their own"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_x01_a_signal_during_up_detached_ends_what_it_started(shell: Shell, number: signal.Signals) -> None:
    command = shell.start("up", "--detach", "--name", "brief")
    until(lambda: shell.read("brief") is not None)
    cluster = shell.state("brief")
    assert cluster.pid != command.pid
    command.send_signal(number)
    out, _ = command.communicate(timeout=SECONDS)
    assert command.returncode == 128 + number
    assert "cluster 'brief' is stopped" in out
    assert "Traceback" not in out
    assert not cluster.alive
    assert shell.left() == []
    assert not Path(cluster.root).exists()


def test_x01_of_two_ups_of_one_name_one_wins(shell: Shell) -> None:
    both = [shell.start("up", "--detach", "--bare", "--nodes", "0", "--name", "one") for _ in range(2)]
    printed = [each.communicate(timeout=SECONDS)[0] for each in both]
    assert sorted(each.returncode for each in both) == [0, 1], printed
    assert not any("Traceback" in text for text in printed)
    loser = printed[[each.returncode for each in both].index(1)]
    assert "already running" in loser or "by another process" in loser
    assert shell.state("one").alive
    assert shell.run("down", "--name", "one").returncode == 0


def test_x01_a_state_folder_that_cannot_be_used_is_told_at_once(shell: Shell) -> None:
    (shell.home / "file").touch()
    for home in ("/proc/none", str(shell.home / "file")):
        refused = shell.run("up", HOME=home, XDG_STATE_HOME="")
        assert refused.returncode == 2, refused.stderr
        assert "set XDG_STATE_HOME to a directory that you can write to" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert "no cluster 'apportion' is running" in shell.run("down", HOME=home, XDG_STATE_HOME="").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_x01_the_state_of_another_user_is_not_used(shell: Shell) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    try:
        state = cluster_files.ClusterState("trap", victim.pid, cluster_files.started_at(victim.pid))
        folder = shell.home / "state" / "apportion"
        folder.mkdir(parents=True)
        (folder / "trap.json").write_text(json.dumps({"name": "trap", "pid": state.pid, "started": state.started}))
        os.chown(folder / "trap.json", 1234, 1234)
        refused = shell.run("down", "--name", "trap")
        assert refused.returncode == 2
        assert "belongs to another user (uid 1234)" in refused.stderr
        assert victim.poll() is None
        os.chown(folder, 1234, 1234)
        refused = shell.run("up", "--bare", "--nodes", "0")
        assert refused.returncode == 2
        assert "belongs to another user" in refused.stderr
        (folder / "trap.json").unlink()
    finally:
        victim.kill()
        victim.wait()


def test_x01_a_damaged_or_stale_state_file_stops_no_process(shell: Shell) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    folder = shell.home / "state" / "apportion"
    folder.mkdir(parents=True)
    try:
        (folder / "stale.json").write_text(json.dumps({"name": "stale", "pid": victim.pid, "started": "1"}))
        assert shell.run("down", "--name", "stale").returncode == 0
        for content in ("", "{", "[]", '{"name": 7}', "\x00"):
            (folder / "damaged.json").write_text(content)
            assert shell.read("damaged") is None
        assert shell.run("down", "--name", "damaged").stdout == "no cluster 'damaged' is running\n"
        (folder / "damaged.json").unlink()
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_x05_a_terminal_without_unicode_gets_plain_characters(shell: Shell, encoding: str) -> None:
    plain = {"PYTHONIOENCODING": encoding, "LANG": "C", "LC_ALL": "C"}
    folder = shell.home / "földer \u2713"
    folder.mkdir()
    refused = shell.run("up", "--topology", str(folder / "none.yaml"), **plain)
    assert refused.returncode == 2
    assert "cannot be read" in " ".join(refused.stderr.replace("|", " ").split())
    cluster = shell.up("plain", "--kubeconfig", str(folder / "config"), **plain)
    shown = shell.run("top", "--once", "--kubeconfig", str(folder / "config"), **plain)
    assert "Traceback" not in shown.stderr
    assert cluster.alive


def test_x05_output_that_nobody_takes_is_no_traceback(shell: Shell) -> None:
    with Path("/dev/full").open("wb") as full:
        for words in (["--help"], ["down"]):
            command = [sys.executable, "-m", "apportion", *words]
            ended = subprocess.run(
                command, env=shell.environment, stdout=full, stderr=subprocess.PIPE, timeout=SECONDS, check=False
            )
            assert ended.returncode == 1, words
            assert b"Traceback" not in ended.stderr
            assert b"Exception ignored" not in ended.stderr
            assert b"No space left on device" in ended.stderr
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "apportion", "down"],
        env=shell.environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=SECONDS,
        check=False,
    )
    os.close(writing)
    assert b"Traceback" not in ended.stderr
    assert b"Exception ignored" not in ended.stderr
    assert ended.returncode == 1
