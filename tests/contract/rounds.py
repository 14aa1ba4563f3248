"""The contract suite again and again on one control plane: `pytest tests/contract --rounds 3`.

What a test leaves behind, or expects to be the first to do, shows in the next round. A round begins when the one
before has ended, each in an order of its own (the seed that pytest prints repeats it).
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROUNDS = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rounds", type=int, default=ROUNDS, help=f"how often the contract suite runs in one session ({ROUNDS})"
    )


@pytest.fixture
def _round(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if HERE in metafunc.definition.path.parents:
        metafunc.fixturenames.append("_round")
        rounds = range(1, metafunc.config.getoption("rounds") + 1)
        metafunc.parametrize("_round", rounds, indirect=True, ids=lambda number: f"round{number}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After they were shuffled: the suite's places in the run stay, its rounds follow each other there."""
    places = [place for place, item in enumerate(items) if _number(item)]
    in_rounds = sorted((items[place] for place in places), key=_number)
    for place, item in zip(places, in_rounds, strict=True):
        items[place] = item


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    seed = config.getoption("randomly_seed", None)
    if isinstance(seed, int):
        terminalreporter.write_line(f"order of the tests: --randomly-seed={seed}")


def _number(item: pytest.Item) -> int:
    call = getattr(item, "callspec", None)
    return int(call.params.get("_round", 0)) if call is not None else 0
