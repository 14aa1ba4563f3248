"""A leader that was stopped for a while and resumes: what it sends late is refused, and it finds out that it lost."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.cluster.candidate import KEY, LEDGER
from tests.environments.binaries import ROOT
from tests.environments.cluster import Cluster

PATIENCE_SECONDS = 60


class Candidate:
    """A candidate's process and the words it has said."""

    def __init__(self, cluster: Cluster, namespace: str, identity: str) -> None:
        self.identity = identity
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.candidate", str(cluster.kubeconfig), namespace, identity],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._words: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def hear(self, *words: str) -> str:
        """The next of these words; others are passed over."""
        while (said := self._words.get(timeout=PATIENCE_SECONDS)) not in words:
            assert said, f"{self.identity} has ended"
        return said

    def send(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def end(self) -> None:
        self._process.kill()
        self._process.wait(timeout=10)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._words.put(line.strip())
        self._words.put("")


@contextmanager
def candidates(cluster: Cluster, namespace: str) -> Iterator[tuple[Candidate, Candidate]]:
    with ExitStack() as stack:
        found = []
        for identity in ("first", "second"):
            candidate = Candidate(cluster, namespace, identity)
            stack.callback(candidate.end)
            found.append(candidate)
            if not found[1:]:
                candidate.hear("signed")  # so it is this one that leads
        yield found[0], found[1]


@pytest.mark.parametrize("moment", ["sending", "signed"])
def test_what_a_resumed_leader_sends_late_is_refused(any_cluster: Cluster, namespace: str, moment: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    ledger = {"metadata": {"name": LEDGER}, "data": {KEY: ""}}
    any_cluster.api.create(path, ledger)
    with candidates(any_cluster, namespace) as (first, second):
        first.hear(moment)
        first.send(signal.SIGSTOP)
        second.hear("signed")
        first.send(signal.SIGCONT)
        # In either order: what was on its way goes on while the leader steps down.
        awaited = {"lost", "refused"} if moment == "sending" else {"lost"}
        while awaited:
            awaited.remove(first.hear("lost", "refused", "signed"))
        second.hear("signed")
        signatures = any_cluster.api.get(f"{path}/{LEDGER}")["data"][KEY].split()
    assert signatures[0] == "first"
    assert signatures == sorted(signatures), "nobody signs after a successor has"
