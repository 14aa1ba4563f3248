"""What a replay is judged by: how much of the GPUs is allocated once so much of them was asked for."""

from __future__ import annotations

COLUMNS = (95, 100, 130)


class AllocationMeter:
    """After each arrival the allocated percentage goes to the column of the arrived percentage."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._arrived = 0
        self._allocated = 0
        self._sums: dict[int, float] = dict.fromkeys(COLUMNS, 0.0)
        self._counts: dict[int, int] = dict.fromkeys(COLUMNS, 0)

    def note(self, asked: int, *, placed: bool) -> None:
        self._arrived += asked
        if placed:
            self._allocated += asked
        column = round(100 * self._arrived / self._capacity)
        if column in self._sums:
            self._sums[column] += 100 * self._allocated / self._capacity
            self._counts[column] += 1

    def columns(self) -> dict[str, float | None]:
        return {
            str(column): self._sums[column] / self._counts[column] if self._counts[column] else None
            for column in COLUMNS
        }
