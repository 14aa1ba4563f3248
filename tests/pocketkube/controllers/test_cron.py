"""Schedules of CronJobs: time zones, changes of the clock and intervals, as the library of Kubernetes computes them.

`cron_cases.json` was written by that library (robfig/cron 3.0.1).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from apportion.apis import kinds
from pocketkube import cron_expressions
from pocketkube.clock import seconds_of, stamp
from pocketkube.controllers.workloads import cron_jobs
from tests.pocketkube.cluster import RunningCluster, template

CASES: dict[str, Any] = json.loads(Path(__file__).with_name("cron_cases.json").read_text())


def following(schedule: str, zone: str, after: float, count: int) -> list[float]:
    parsed = cron_expressions.parse(schedule, ZoneInfo(zone))
    found: list[float] = []
    for _ in range(count):
        moment = parsed.next_after(found[-1] if found else after)
        if moment is None:
            break
        found.append(moment)
    return found


def test_the_moments_are_those_of_the_library() -> None:
    for schedule, zone, after, expected in CASES["moments"]:
        assert following(schedule, zone, after, max(1, len(expected))) == expected, (schedule, zone, after)


def test_what_is_no_schedule_is_refused_in_the_words_of_the_library() -> None:
    for schedule, error in CASES["refused"].items():
        with pytest.raises(cron_expressions.CronError) as refused:
            cron_expressions.parse(schedule)
        assert str(refused.value) == error


def test_a_time_that_the_clock_leaves_out_does_not_come_and_one_that_it_repeats_comes_twice() -> None:
    spring = following("30 2 * * *", "America/New_York", seconds_of("2023-03-11T12:00:00Z"), 1)
    assert [stamp(moment) for moment in spring] == ["2023-03-13T06:30:00Z"]
    autumn = following("30 1 * * *", "America/New_York", seconds_of("2023-11-05T04:00:00Z"), 2)
    assert [stamp(moment) for moment in autumn] == ["2023-11-05T05:30:00Z", "2023-11-05T06:30:00Z"]


def test_a_midnight_that_the_clock_leaves_out_east_of_greenwich_ends_the_search_all_the_same() -> None:
    found = following("0 9 * * *", "Asia/Beirut", seconds_of("2022-03-26T12:00:00Z"), 2)
    assert [stamp(moment) for moment in found] == ["2022-03-27T06:00:00Z", "2022-03-28T06:00:00Z"]
    assert following("0 0 1 * *", "Pacific/Apia", seconds_of("2011-12-29T12:00:00Z"), 1)


def test_an_interval_counts_from_the_last_time() -> None:
    every = cron_expressions.parse("@every 5m")
    since = seconds_of("2026-01-01T00:00:10Z")
    assert cron_jobs._latest_due(every, since, since + 299, None) is None
    assert cron_jobs._latest_due(every, since, since + 301, None) == since + 300
    assert cron_jobs._latest_due(every, since, since + 86_401, None) == since + 86_400
    assert cron_jobs._next(every, since, since + 301) == since + 600


async def test_a_cron_job_follows_its_time_zone_and_intervals(cluster: RunningCluster) -> None:
    jobs = {"spec": {"template": template({}, "true", restartPolicy="Never")}}
    old = {"status": {"lastScheduleTime": "2024-01-01T00:00:00Z"}}
    for name, spec in {
        "zoned": {"schedule": "30 4 1 1 *", "timeZone": "Asia/Kolkata"},
        "interval": {"schedule": "@every 1h"},
    }.items():
        await cluster.create(kinds.CRON_JOBS, {"metadata": {"name": name}, "spec": spec | {"jobTemplate": jobs}})
        await cluster.client.patch(kinds.CRON_JOBS, name, old, namespace="default", subresource="status")
    made = await cluster.until_true(lambda: cluster.list(kinds.JOBS), lambda found: len(found) == 2)
    due = {
        job["metadata"]["name"].rpartition("-")[0]: job["metadata"]["annotations"][cron_jobs.SCHEDULED] for job in made
    }
    assert due["zoned"].endswith("-12-31T23:00:00Z"), "04:30 in Kolkata"
    assert due["interval"].endswith(":00:00Z"), "whole hours after the last time"
