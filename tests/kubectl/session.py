"""Runs kubectl as a user would, with a transcript of what it printed.

The namespace stands in the kubeconfig, so commands need no flag for it. A transcript leaves out what differs from
run to run (ages, identities, addresses, hashes): two clusters that behave alike give equal transcripts.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.environments import binaries
from tests.environments.cluster import Cluster
from tests.environments.waiting import NeverHappenedError, until

Json = dict[str, Any]
NAMESPACE = "kubectl-user"
LONGEST_SECONDS = 90  # of one command; those that wait say themselves for how long, and what they waited for


class KubectlSession:
    """One chapter on one cluster, in a namespace of its own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.transcript: list[str] = []
        self._environment = self._make_environment()

    def __call__(self, *args: str, input: str | None = None, fails: bool = False, editor: str | None = None) -> str:  # noqa: A002
        """Run it, keep it in the transcript, and give what it printed."""
        return self._keep(args, *self._run(args, input, editor), fails=fails)

    def aside(self, *args: str, input: str | None = None) -> str:  # noqa: A002
        """The same without a place in the transcript: what it prints depends on the moment."""
        code, said = self._run(args, input, None)
        assert not code, f"kubectl {' '.join(args)}: exit code {code}: {said}"
        return said

    def refused(self, *args: str) -> str:
        """Only the first line of the refusal enters the transcript."""
        code, said = self._run(args, None, None)
        assert code, f"kubectl {' '.join(args)} was not refused: {said}"
        self.transcript.append(f"$ kubectl {' '.join(args)}\n{steady(said.splitlines()[0])}")
        return said

    def apply(self, *manifests: Json, server_side: bool = False) -> str:
        flags = ["--server-side"] if server_side else []
        return self("apply", *flags, "-f", "-", input=yaml.safe_dump_all(manifests))

    def value(self, what: str, path: str) -> str:
        return self.aside("get", what, "-o", f"jsonpath={{{path}}}")

    def until(self, args: tuple[str, ...], holds: Callable[[str], bool]) -> str:
        """What `kubectl args...` prints once it is as wished; only this last answer enters the transcript."""
        last = (0, "")

        def ask() -> bool:
            nonlocal last
            last = self._run(args, None, None)
            return holds(last[1])

        try:
            until(ask, f"kubectl {' '.join(args)}", within=60)
        except NeverHappenedError as error:
            error.add_note(last[1])
            raise
        return self._keep(args, *last, fails=False)

    @contextmanager
    def following(self, *args: str) -> Iterator[Shown]:
        """A command that goes on (`-w`, `-f`); gives a function that waits until a text has been printed."""
        output = self.folder / "followed"
        with output.open("w") as sink:
            process = subprocess.Popen(
                [str(binaries.path("kubectl")), *args], stdout=sink, stderr=sink, env=self._environment
            )
        try:
            yield Shown(output, args)
        finally:
            process.terminate()
            process.wait(timeout=10)
        self.transcript.append(f"$ kubectl {' '.join(args)} (followed)")

    def _keep(self, args: tuple[str, ...], code: int, said: str, *, fails: bool) -> str:
        self.transcript.append(f"$ kubectl {' '.join(args)}\n{steady(said)}[exit code {code}]")
        assert bool(code) == fails, f"kubectl {' '.join(args)}: exit code {code}: {said}"
        return said

    def _run(self, args: tuple[str, ...], given: str | None, editor: str | None) -> tuple[int, str]:
        done = subprocess.run(
            [str(binaries.path("kubectl")), *args],
            input=given,
            stdin=None if given is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
            cwd=self.folder,
            env=self._environment | ({"KUBE_EDITOR": editor} if editor else {}),
        )
        return done.returncode, done.stdout

    def _make_environment(self) -> dict[str, str]:
        content = yaml.safe_load(self.cluster.kubeconfig.read_text())
        for context in content["contexts"]:
            context["context"]["namespace"] = NAMESPACE
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(content))
        kubeconfig.chmod(0o600)
        # One cache of discovery for all chapters on a cluster.
        cache = self.cluster.kubeconfig.parent / "kubectl-cache"
        here = {"KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(cache), "KUBERC": "off", "HOME": str(self.folder)}
        return os.environ | here | {"TMPDIR": str(self.folder)}


class Shown:
    """Waits until a command that goes on has printed something."""

    def __init__(self, output: Path, args: tuple[str, ...]) -> None:
        self._output = output
        self._command = f"kubectl {' '.join(args)}"

    def __call__(self, text: str, *, meanwhile: Callable[[], object] = lambda: None) -> None:
        def printed() -> bool:
            meanwhile()
            return text in self._output.read_text()

        until(printed, f"{self._command} prints {text}")


@contextmanager
def chapter(cluster: Cluster, folder: Path) -> Iterator[KubectlSession]:
    """A namespace with its default account, removed with all that is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = f"/api/v1/namespaces/{NAMESPACE}"
    until(lambda: not cluster.api.exists(path), "the namespace of the chapter before is gone", within=60)
    cluster.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    until(lambda: cluster.api.exists(f"{path}/serviceaccounts/default"), "the default account")
    until(lambda: cluster.api.exists(f"{path}/configmaps/kube-root-ca.crt"), "the root certificate")
    try:
        yield KubectlSession(cluster, folder)
    finally:
        cluster.api.delete(path)


def steady(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, name in _PASSING:
        text = pattern.sub(name, text)
    lines = [line.rstrip() for line in text.splitlines()]
    # Schedulers repeat their events as often as they like: what is said again counts once.
    again = (bool(line) and line == before for line, before in zip(lines, ["", *lines], strict=False))
    return "".join(f"{line}\n" for line, repeated in zip(lines, again, strict=True) if not repeated)


_HASHED = "[bcdfghjklmnpqrstvwxz2456789]"
_PASSING = [
    (re.compile(pattern, re.MULTILINE), name)
    for pattern, name in (
        # kubectl's own log, such as of a watch that its time limit cut short.
        (r"^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ .*\n", ""),
        (r"/\S+/(LIVE|MERGED)-\d+", r"\1"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"containerd://[0-9a-f]{64}", "CONTAINER"),
        # Images that no registry was asked for have no digest of one.
        (r"(\S+@)?sha256:[0-9a-f]{64}", "IMAGE"),
        (r"(Restart Count: +)[1-9]\d*", r"\1SOME"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d \S+", "TIME"),
        (r"(resourceVersion\W+)\d+", r"\1NUMBER"),
        (rf"-{_HASHED}{{6,10}}-{_HASHED}{{5}}\b", "-HASH-HASH"),
        (rf"(-|pod-template-hash\W+){_HASHED}{{8,10}}\b", r"\1HASH"),
        (r"(kube-api-access|endpointslice.discovery.k8s.io/\w+|once|hello|fails)-[a-z0-9]{5}\b", r"\1-HASH"),
        (r"\b\d+\.\d+\.\d+\.\d+(:\d{5})?\b", "ADDRESS"),
        (r" \(x\d+ over [\ddhms]+\)", ""),
        (r"<invalid>|\b(\d+(d|h|m(?!s)|s|ms))+\b", "AGE"),
        (r"\t\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \S+$", " TIME"),
        (r" {2,}", "  "),
    )
]
