"""Every test here runs on the embedded cluster and on a real kube-apiserver, with the same code."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from tests.contract.raw_requests import RawRequests, until
from tests.environments.cluster import Cluster


@pytest.fixture
async def ask(any_cluster: Cluster) -> AsyncIterator[RawRequests]:
    async with RawRequests(any_cluster.kubeconfig) as asking:
        yield asking


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
async def pods(ask: RawRequests, namespace: str) -> str:
    """The path of pods, once the namespace can have some."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"

    async def there() -> bool:
        return (await ask("GET", accounts)).code == 200

    await until(there, "the namespace has its default service account")
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def deployments(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


@pytest.fixture
def group() -> str:
    """An API group that no other test uses."""
    return f"g{secrets.token_hex(3)}.example.io"
