"""Log lines that values from outside cannot forge (T02)."""

from __future__ import annotations

import io
import logging
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.cluster.log_text import LONGEST, OneLineFormatter, one_line, word

FORGED = "pod\n2026-01-01T00:00:00 INFO webhook stopped"


@given(st.text())
def test_t02_a_message_is_one_line_whatever_is_in_it(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
    assert one_line(text).isprintable()


@pytest.mark.parametrize("name", ["default/test-medium-gpu", "2g.20gb->1g.10gb", "ns/gpu-test-7c9", "a:b+c,d_e"])
def test_f06_ordinary_names_stay_as_they_are(name: str) -> None:
    assert one_line(name) == word(name) == name


@pytest.mark.parametrize("value", ["", "a b", "x outcome=placed", 'a"b', FORGED, "\x1b[2J", "\u2028", "ünï"])
def test_t02_values_that_are_no_plain_words_are_quoted(value: str) -> None:
    quoted = word(value)
    assert quoted.startswith('"')
    assert quoted.endswith('"')
    assert quoted.isprintable()


def test_t02_a_very_long_message_is_shortened() -> None:
    assert len(one_line("x" * 3_000_000)) < LONGEST + 100


def test_t02_lines_of_a_traceback_are_indented() -> None:
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(OneLineFormatter("%(levelname)s %(message)s"))
    log = logging.getLogger(__name__)
    log.propagate = False
    log.handlers[:] = [handler]
    try:
        int(FORGED)
    except ValueError:
        log.exception("cannot read %s", FORGED)
    first, *rest = output.getvalue().splitlines()
    assert first == "ERROR cannot read pod\\n2026-01-01T00:00:00 INFO webhook stopped"
    assert all(line.startswith("    ") for line in rest)
    assert len(rest) > 2


def test_t02_every_plane_logs_through_it() -> None:
    script = (
        "import logging; from apportion.cluster import process; process.set_up_logging('scheduler');"
        f"logging.getLogger('x').warning('bound %s', {FORGED!r})"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr
    assert len(said.splitlines()) == 1
    assert r"WARNING scheduler bound pod\n2026-01-01" in said
