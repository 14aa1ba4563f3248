"""The end-to-end suite: `make test-e2e` runs it against whatever cluster the current kubeconfig names. Rule S14.

It needs kubectl and an installed Apportion, nothing else; a plain `pytest` leaves it alone. A spec is called
after its module's `TITLE` and its own name (`GPU slices: one more pod waits ...`); FOCUS is a regular
expression that is searched in that.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator

import pytest

from tests.e2e.current_cluster import CurrentCluster
from tests.story.slice_story import NamespacedKubectl

ENABLED = os.environ.get("APPORTION_E2E") == "1"
FOCUS = os.environ.get("FOCUS", "")
IMAGE = os.environ.get("E2E_IMAGE", "busybox:1.36")

collect_ignore_glob = [] if ENABLED else ["test_*.py"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not ENABLED:
        return
    try:
        wanted = re.compile(FOCUS)
    except re.error as error:
        raise pytest.UsageError(f"FOCUS={FOCUS!r} is no regular expression: {error}") from None
    chosen = [item for item in items if wanted.search(title(item))]
    if not chosen:
        known = "\n  ".join(sorted(title(item) for item in items))
        raise pytest.UsageError(f"FOCUS={FOCUS!r} matches none of the {len(items)} end-to-end tests:\n  {known}")
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def title(item: pytest.Item) -> str:
    words = item.name.removeprefix("test_").replace("_", " ")
    return f"{getattr(getattr(item, 'module', None), 'TITLE', '')}: {words}"


@pytest.fixture(scope="session")
def current() -> CurrentCluster:
    """The cluster of the current kubeconfig."""
    cluster = CurrentCluster()
    cluster.check()
    return cluster


@pytest.fixture
def tell(current: CurrentCluster) -> Iterator[NamespacedKubectl]:
    """kubectl in a namespace of its own, which goes with the test."""
    namespace = f"e2e-{secrets.token_hex(3)}"
    current.kubectl("create", "namespace", namespace)
    teller = NamespacedKubectl(current, namespace, image=IMAGE)
    yield teller
    current.kubectl("delete", "namespace", namespace, "--timeout=180s")
