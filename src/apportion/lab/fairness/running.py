"""Compute the fair shares of all cases of a file."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.apis.errors import InputError
from apportion.apis.identities import QueueName
from apportion.core.queues import fair_shares
from apportion.lab.fairness import cases, files


@dataclass(frozen=True)
class DividedCase:
    case: cases.Case
    shares: dict[QueueName, int]  # in the order of the file


def run_file(path: str) -> list[DividedCase]:
    """Raises InputError if the file or one of its cases is invalid."""
    return [_run(case) for case in cases.parse_all(files.read(path))]


def _run(case: cases.Case) -> DividedCase:
    try:
        shares = fair_shares.fair_shares(case.total, case.queues)
    except InputError as error:
        raise InputError(f"{case.field}{error.field}", error.value, error.fix, code=error.code) from None
    return DividedCase(case, {queue.name: shares[queue.name] for queue in case.queues})
