"""What the log tells people, in the words of the document, and what it tells machines."""

from __future__ import annotations

import logging

import pytest

from apportion.admission.fallback import decision_log
from apportion.apis import kinds
from tests.admission.fallback.cluster import FallbackCluster, fallback_cluster
from tests.admission.fallback.test_unredeemed_promises import forged, stranger
from tests.builders.pods import fallback_pod
from tests.environments.waiting import eventually


@pytest.fixture(autouse=True)
def _lines_for_machines() -> None:
    logging.getLogger("apportion").setLevel(logging.INFO)


async def test_f06_the_log_reads_as_the_document_shows_it(capfd: pytest.CaptureFixture[str]) -> None:
    async with fallback_cluster() as it:
        decision_log.set_up()  # the output of this very test
        await fill(it)
        capfd.readouterr()
        await it.create(fallback_pod(name="test-medium-gpu"))
        told = capfd.readouterr().err.splitlines()
        assert [line for line in told if "test-medium-gpu" in line and "outcome=" not in line] == [
            "Reviewing pod: default/test-medium-gpu",
            "Pod default/test-medium-gpu requests 2g.20gb MIG",
            "2g.20gb not available, falling back to 1g.10gb for pod default/test-medium-gpu",
            "Applied fallback patch to pod default/test-medium-gpu",
        ]


async def test_f06_machines_get_keys_and_values(caplog: pytest.LogCaptureFixture) -> None:
    async with fallback_cluster() as it:
        await it.create(fallback_pod(name="fits"))
    (line,) = [record.message for record in caplog.records if "pod=default/fits" in record.message]
    assert "wanted=2g.20gb outcome=placed steps=0 node=medium dry_run=false waited_ms=" in line


async def test_f04_m02_templates_are_looked_at_and_never_changed(capfd: pytest.CaptureFixture[str]) -> None:
    async with fallback_cluster() as it:
        await fill(it)
        decision_log.set_up()
        template = {"metadata": {"labels": {"app": "a"}}, "spec": {"restartPolicy": "Never", **fallback_pod()["spec"]}}
        job = await it.client.create(
            kinds.JOBS, {"metadata": {"name": "train"}, "spec": {"template": template}}, namespace="default"
        )
        template = {**template, "spec": {**template["spec"], "restartPolicy": "Always"}}
        spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
        deployment = await it.client.create(
            kinds.DEPLOYMENTS, {"metadata": {"name": "serve"}, "spec": spec}, namespace="default"
        )
        told = capfd.readouterr().err
    for made in (job, deployment):
        resources = made["spec"]["template"]["spec"]["containers"][0]["resources"]
        assert resources["limits"] == {"nvidia.com/mig-2g.20gb": "1"}
    assert "Reviewing job: default/train\nJob default/train requests 2g.20gb MIG\n" in told
    assert "Reviewing deployment: default/serve\nDeployment default/serve requests 2g.20gb MIG\n" in told


async def fill(it: FallbackCluster) -> None:
    """No 2g.20gb is left."""
    await it.set_capacity("medium", {"nvidia.com/mig-1g.10gb": 4})
    await eventually(lambda: falls(it))


async def falls(it: FallbackCluster) -> bool:
    made = await it.create(fallback_pod(), dry_run=True)
    return "nvidia.com/mig-1g.10gb" in made["spec"]["containers"][0]["resources"]["limits"]


async def test_t02_f06_a_name_with_a_line_break_forges_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    async with fallback_cluster(replicas=0) as it:
        asker = await stranger(it, await it.start("replica"))
        decision_log.set_up()
        capfd.readouterr()
        body = forged("default")
        body["request"]["name"] = "x\nApplied fallback patch to pod default/other"
        await asker.ask(body, "/mutate-fallback")
        told = capfd.readouterr().err.splitlines()
    assert any(r"x\nApplied fallback patch" in line for line in told)
    assert not any(line.startswith("Applied") for line in told)
