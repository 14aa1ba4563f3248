"""Every option of every command with values that cannot work: one clear message, an exit code, never a traceback.

The commands and their options are read from the command line itself, so a new option is covered without a line here.
No cluster can be reached: a value that is accepted ends the command at the missing kubeconfig.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from apportion.cli import main

STRINGS = ("", "../../etc/passwd", "line\nbreak\x1b[31m", "x" * 5000, "\udcff")
NUMBERS = ("-1", "0", "nan", "99999999999999999999999", "٣")
# Experiments that take long with most values: their numbers are checked one by one below.
LONG = {"lab openb", "lab mig100", "lab rate", "lab bench"}


class Case(NamedTuple):
    command: str
    option: str  # empty for an argument


def cases() -> Iterator[Case]:
    for name, location in main.COMMANDS.items():
        command = main._load(name, location)
        listed = getattr(command, "commands", None)
        for path, each in (
            {f"{name} {sub}": one for sub, one in listed.items()}.items() if listed else ((name, command),)
        ):
            for option in each.params:
                if option.param_type_name == "argument":
                    yield Case(path, "")
                elif not getattr(option, "is_flag", False):
                    yield Case(path, option.opts[0])


CASES = [case for case in cases() if case.command not in LONG]


@pytest.fixture
def hostile_paths(tmp_path: Path) -> tuple[str, ...]:
    empty, binary, deep, text = (tmp_path / name for name in ("empty", "binary", "deep", "ünï \n text"))
    empty.touch()
    binary.write_bytes(bytes(range(256)) * 10)
    deep.write_text("[" * 1200)
    text.write_text("clusters: [1, {name: null}]\npools: 7\nname: [")
    files = (empty, binary, deep, text, tmp_path, tmp_path / "missing" / "file", Path("/dev/full"))
    return tuple(map(str, files))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No cluster, no state, and the loggers as they were."""
    for name in list(os.environ):
        if name.startswith(("APPORTION_", "KUBE", "POD_", "NODE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NODE_NAME", "n1")
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def run(*words: str) -> tuple[int, str]:
    """The command in this process: its exit code and what it printed."""
    printed = io.StringIO()
    code: object = 0
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", ["apportion", *words])
                main.main()
        except SystemExit as end:
            code = end.code
    return int(code or 0) if not isinstance(code, str) else 1, printed.getvalue()


def started(case: Case) -> list[str]:
    """What the command needs besides the option, so that it ends at once."""
    words = case.command.split()
    if case.command == "up" and case.option != "--topology":
        return [*words, "--topology", "missing.yaml"]
    if case.command == "why" and case.option:
        return [*words, "pod"]
    if case.command in {"demo", "lab reclaim", "lab turns"}:
        return [*words, "--output", "nothing"]
    return words


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.command} {case.option}".replace(" ", "_"))
def test_x01_no_value_of_any_option_ends_in_a_traceback(case: Case, hostile_paths: tuple[str, ...]) -> None:
    for value in (*STRINGS, *NUMBERS, *hostile_paths):
        words = started(case)
        code, printed = run(*words, case.option, value) if case.option else run(*words, "--", value)
        told = f"{case.command} {case.option} {value[:40]!r}: {code} {printed[:500]}"
        assert code in (1, 2) or (case.command in {"down", "nvidia-smi"} and code == 0), told
        assert "Traceback" not in printed, told
        assert printed.strip(), told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("up --port 99999", "--port"),
        ("up --port -1", "--port"),
        ("up --nodes 0", "at least one node, or --bare"),
        ("up --nodes -3", "negative"),
        ("up --log-level loud", "'loud' is not a log level"),
        ("up --timeout nan", "--timeout"),
        ("up --timeout -1", "--timeout"),
        ("up --restart-backoff inf", "--restart-backoff"),
        ("up --name ../x", "is not a valid name"),
        ("down --name ../x", "is not a valid name"),
        ("down --timeout nan", "--timeout"),
        ("scheduler --log-level loud", "'loud' is not a log level"),
        ("scheduler --probes 127.0.0.1:99999", "is not an address"),
        ("scheduler --lease-duration 0", "above 0"),
        ("scheduler --policy luck", "is not a policy"),
        ("scheduler --namespace A_b", "is not a namespace"),
        ("webhook --listen nowhere", "is not an address"),
        ("webhook --serve cake", "specify one or more"),
        ("webhook --tiers 9z", "--tiers"),
        ("webhook --promise-seconds nan", "above 0"),
        ("node --listen :0x", "is not an address"),
        ("node --log-level loud", "'loud' is not a log level"),
        ("operator --probes :-1", "is not an address"),
        ("operator --emulated-mode maybe", "--emulated-mode"),
        ("simulator --log-level loud", "'loud' is not a log level"),
        ("certs --settle -1", "--settle"),
        ("certs --secret ../x", "is not an object name"),
        ("top --namespace A", "is not a namespace"),
        ("why a/b/c/d", "use NAME, or NAMESPACE/NAME"),
        ("demo --picture /no/such/folder/x.svg", "does not exist"),
        ("snapshot -o /no/such/folder/x", "does not exist"),
        ("lab openb --data /no/such", "--data requires a directory"),
        ("lab openb --seeds 1-99999999999", "at most"),
        ("lab mig100 --seeds x", "must be numbers"),
        ("lab mig100 --mix cake", "mix"),
        ("lab mig100 --policy luck --seeds 1", "luck"),
        ("lab rate --copies 999999999", "--copies"),
        ("lab rate --limit -1", "--limit"),
        ("nonsense", "nonsense"),
    ],
)
def test_x01_bad_values_are_told_with_the_option_and_exit_code_2(words: str, said: str) -> None:
    code, printed = run(*words.split())
    shown = " ".join(printed.replace("│", " ").split())
    assert code == 2, shown
    assert said in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("level", ["loud", ""])
def test_r03_a_log_level_of_the_environment_is_checked_too(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPORTION_LOG_LEVEL", level)
    code, printed = run("scheduler")
    assert code == 2
    assert ("is not a log level" in printed) == bool(level)


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "[]",
        "clusters: 7",
        "clusters: [7]",
        "clusters: [{name: null}]",
        "clusters: [{name: a, cluster: [1]}]",
        "{clusters: [{name: a, cluster: {server: 7}}]}",
        "current-context: [a]",
        *(
            f"{{clusters: [{{name: a, cluster: {{server: {server}}}}}], users: [{{name: a, user: {user}}}],"
            " contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}"
            for server, user in (
                ('"https://[bad"', "{token: t}"),
                ('"ftp://x"', "{token: t}"),
                ('"https://127.0.0.1:99999"', "{token: t}"),
                ('"https://a b"', "{token: t}"),
                ('"http://127.0.0.1:1"', '{token: "a\\nb"}'),
                ('"http://127.0.0.1:1"', "{exec: word}"),
                ('"http://127.0.0.1:1"', "{exec: {command: /no/such/program}}"),
                ('"http://127.0.0.1:1"', "{tokenFile: /no/such/file}"),
                ('"https://127.0.0.1:1"', "{client-certificate-data: '%%%'}"),
                ('"https://127.0.0.1:1"', "{client-certificate: /no/such/file}"),
                ('"http://127.0.0.1:1"', "{token: t}"),
            )
        ),
    ],
)
def test_x01_a_kubeconfig_that_leads_nowhere_is_told_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    for words in ("why pod", "top --once", "snapshot", "certs"):
        code, printed = run(*words.split(), "--kubeconfig", str(path))
        assert code in (1, 2), printed
        assert len(printed.strip().splitlines()) == 1, printed
        assert "Traceback" not in printed
