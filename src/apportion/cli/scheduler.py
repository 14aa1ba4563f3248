"""`apportion scheduler`: the scheduler plane as a process."""

from __future__ import annotations

from typing import Annotated

import typer

from apportion.apis.installation import NAMESPACE_ENV, Installation
from apportion.cli import connecting, options


def command(
    probes: options.Probes = "127.0.0.1:9401",
    namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of claims, NodeAccelerators and the Lease.",
            envvar=NAMESPACE_ENV,
            callback=options.namespace,
        ),
    ] = Installation.namespace,
    policy: Annotated[
        str, typer.Option(help="Scoring policy: fragmentation, pack, spread, first-fit or best-fit.")
    ] = "fragmentation",
    consolidation: Annotated[
        str,
        typer.Option(
            help="Pods that are moved to make room for a pod that asks for GPUs: off (none), gpus (those without "
            "slices) or slices (all, and for slices too)."
        ),
    ] = "gpus",
    lease_name: options.LeaseName = Installation.scheduler_lease,
    lease_duration: options.LeaseDuration = 15.0,
    stale_group_seconds: Annotated[
        int,
        typer.Option(
            help="Seconds that a group of pods may run without its minimum before it is evicted; -1: never evict.",
            envvar="APPORTION_STALE_GROUP_SECONDS",
            min=-1,
        ),
    ] = 60,
    log_level: options.PlaneLogLevel = "Normal",
) -> None:
    """Schedule the pods of das-scheduler and kai-scheduler. Of several replicas, one is the leader."""
    from apportion.apis.request import POLICIES
    from apportion.cluster import process
    from apportion.core.evictions.room import Consolidation
    from apportion.scheduler import main
    from apportion.scheduler.settings import Settings

    if policy not in POLICIES:
        raise typer.BadParameter(f"{policy!r} is not a policy: use one of {', '.join(POLICIES)}", param_hint="--policy")
    if consolidation not in list(Consolidation):
        known = ", ".join(Consolidation)
        raise typer.BadParameter(f"{consolidation!r} is not known: use one of {known}", param_hint="--consolidation")
    settings = Settings(
        probes=probes,
        installation=connecting.installation(namespace=namespace),
        policy=policy,
        consolidation=Consolidation(consolidation),
        lease_name=lease_name,
        lease_duration=lease_duration,
        lease_renew_deadline=lease_duration * 2 / 3,
        lease_retry=max(0.1, lease_duration * 2 / 15),
        stale_group_seconds=stale_group_seconds,
    )
    process.run(lambda: main.run(settings), name="scheduler", level=log_level)
