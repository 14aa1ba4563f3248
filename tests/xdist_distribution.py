"""Two processes share the tests (`pytest -n 2`): a file stays in one of them, and so does the contract suite.

Each process has clusters of its own. What a file's tests share is made once; the suite's rounds follow each other on
one control plane, wherever they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer

SUITE = "tests/contract/"


class ByFile(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return SUITE if nodeid.startswith(SUITE) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)
