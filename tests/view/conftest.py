from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.environments.control_plane import ControlPlane
from tests.environments.fixtures import api_server
from tests.scheduler.conftest import each_cluster

__all__ = ["each_cluster"]


@pytest.fixture(scope="session")
def real_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of its own: these tests define and delete kinds that other tests define too."""
    with api_server(tmp_path_factory) as plane:
        yield plane
