"""Cron expressions: five fields, names of months and days, steps, ranges, lists and the usual short forms."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 7, _DAYS),
)
_LONGEST = timedelta(days=366 * 5)


class CronError(ValueError):
    """A schedule that is none."""


@dataclass(frozen=True)
class Schedule:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def next_after(self, moment: float) -> float | None:
        """The first minute after a moment that matches; None if there is none in five years."""
        at = datetime.fromtimestamp(moment, UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = at + _LONGEST
        while at < end:
            if at.month not in self.months or not self._day_fits(at):
                at = (at + timedelta(days=1)).replace(hour=0, minute=0)
            elif at.hour not in self.hours:
                at = (at + timedelta(hours=1)).replace(minute=0)
            elif at.minute not in self.minutes:
                at += timedelta(minutes=1)
            else:
                return at.timestamp()
        return None

    def _day_fits(self, at: datetime) -> bool:
        """If both kinds of days are restricted, either is enough."""
        day, weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return day and weekday if self.any_day or self.any_weekday else day or weekday


def parse(text: str) -> Schedule:
    fields = _SHORT.get(text.strip(), text).split()
    if len(fields) != len(_FIELDS):
        raise CronError(f"{text!r}: a schedule has five fields, this one has {len(fields)}")
    minutes, hours, days, months, weekdays = (
        _field(field, *bounds) for field, bounds in zip(fields, _FIELDS, strict=True)
    )
    return Schedule(
        minutes,
        hours,
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        any_day=_is_any(fields[2]),
        any_weekday=_is_any(fields[4]),
    )


def _is_any(field: str) -> bool:
    return field.startswith(("*", "?"))


def _field(field: str, least: int, most: int, known: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for part in field.split(","):
        whole, _, step = part.partition("/")
        if step and (not step.isdigit() or int(step) == 0):
            raise CronError(f"{field!r}: {step!r} is no step")
        if whole in ("*", "?"):
            first, last = least, most
        else:
            low, dash, high = whole.partition("-")
            first = _number(low, field, known)
            last = _number(high, field, known) if dash else (most if step else first)
        if not least <= first <= last <= most:
            raise CronError(f"{field!r}: values go from {least} to {most}")
        values |= set(range(first, last + 1, int(step) if step else 1))
    return frozenset(values)


def _number(text: str, field: str, known: dict[str, int]) -> int:
    if text.lower() in known:
        return known[text.lower()]
    if not text.isdigit():
        raise CronError(f"{field!r}: {text!r} is no number")
    return int(text)
