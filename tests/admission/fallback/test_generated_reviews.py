"""Thousands of generated reviews: an answer to each, every patch applies, and nothing that we write is wrong."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import os
import random
import ssl
from dataclasses import replace
from typing import Any

import aiohttp
import jsonpatch
import pytest

from apportion.admission.fallback.decision_rounds import Patience
from apportion.admission.main import PARTS
from apportion.apis import kinds, names
from tests.admission.fallback.cluster import SETTINGS, FallbackCluster, fallback_cluster
from tests.admission.fallback.generating import Generated, generate
from tests.environments.api import RefusedError
from tests.environments.control_plane import ControlPlane

FULL = os.environ.get("APPORTION_SOAK") == "1"
COUNT = 10_000 if FULL else 300
ALL = replace(SETTINGS, serve=PARTS, patience=Patience(deadline=0.2, lifetime=0.2))
AT_ONCE = 20

Checked = list[tuple[dict[str, Any], dict[str, Any]]]
"""Pods as they came and as we left them."""


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_d04_d05_every_review_is_answered_and_every_patch_applies() -> None:
    changed, refused = await campaign()
    assert len(changed) > COUNT // 50
    assert refused > COUNT // 50


@pytest.mark.soak
@pytest.mark.real
@pytest.mark.timeout(3600)
async def test_d04_d05_a_real_api_server_finds_nothing_wrong_with_what_we_changed(control_plane: ControlPlane) -> None:
    changed, _ = await campaign()
    for before, after in changed:
        blamed = complaints(control_plane, after) - complaints(control_plane, before)
        assert not blamed, (before, after, blamed)


async def campaign() -> tuple[Checked, int]:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    dice = random.Random(seed)
    changed: Checked = []
    refused = 0
    async with fallback_cluster(replicas=0) as it:
        await it.slicing_kinds()
        asker = await Asking.of(it)
        try:
            for _ in range(0, COUNT, AT_ONCE):
                batch = [generate(dice) for _ in range(AT_ONCE)]
                answers = await asyncio.gather(*(asker.ask(each) for each in batch))
                for each, answer in zip(batch, answers, strict=True):
                    judge(each, answer, changed)
                    refused += answer is not None and not answer["allowed"]
        finally:
            await asker.session.close()
    return changed, refused


class Asking:
    """Keeps a connection to the webhook, as an API server does."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session = session
        self._address = address

    @classmethod
    async def of(cls, it: FallbackCluster) -> Asking:
        address = await it.start("replica-0", ALL, client=it.client)
        found = await it.client.get(kinds.MUTATING_WEBHOOKS, names.FALLBACK_WEBHOOK_CONFIGURATION)
        bundle = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()
        context = ssl.create_default_context(cadata=bundle)
        connector = aiohttp.TCPConnector(ssl=context, limit=AT_ONCE)
        return cls(aiohttp.ClientSession(connector=connector), address)

    async def ask(self, question: Generated) -> dict[str, Any] | None:
        """The response, or None where the review itself was refused as malformed."""
        url = f"https://{self._address}{question.path}"
        sending = self.session.post(
            url,
            data=question.body,
            headers={"Content-Type": "application/json"},
            server_hostname="gpu-webhook.gpu-webhook.svc",
        )
        async with asyncio.timeout(20):
            async with sending as response:
                text = await response.text()
                assert response.status < 500, (question.body, text)
                if response.status != 200:
                    assert response.status == 400, (question.body, text)
                    assert text.strip()
                    return None
                found: dict[str, Any] = json.loads(text)["response"]
                return found


def judge(question: Generated, answer: dict[str, Any] | None, changed: Checked) -> None:
    if answer is None:
        assert not question.plain, question.body
        return
    if not answer["allowed"]:
        status = answer["status"]
        assert status["message"]
        assert status["code"] == 429 or status["details"]["causes"][0]["field"], status
        return
    if "patch" in answer:
        before = copy.deepcopy(question.obj)
        after = jsonpatch.apply_patch(before, json.loads(base64.b64decode(answer["patch"])))
        assert after != question.obj
        if question.plain:
            changed.append((question.obj, after))


def complaints(cluster: ControlPlane, pod: dict[str, Any]) -> set[str]:
    """The fields that an API server refuses the pod for."""
    try:
        cluster.api.create("/api/v1/namespaces/default/pods?dryRun=All", pod)
    except RefusedError as error:
        answer = json.loads(error.body)
    else:
        return set()
    causes = (answer.get("details") or {}).get("causes") or []
    return {f"{cause.get('field')}: {cause.get('reason')}" for cause in causes} or {answer["message"]}
