"""Cron expressions as CronJobs have them: five fields, or a form that begins with `@`, in a time zone.

The rules and the words are those of the library that Kubernetes uses (robfig/cron): hours and minutes are counted in
real time, so a time that a change of the clock leaves out does not come, and one that it repeats comes twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

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
    (0, 6, _DAYS),
)
_EVERY = "@every "
_AMOUNT = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_YEARS = 5
_LARGEST_SECONDS = 2.0**63 / 1e9
_NOON = 12


class CronError(ValueError):
    """A schedule that is none."""


@dataclass(frozen=True)
class Schedule:
    """Moments at which the clock of a time zone shows what the fields say."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool
    zone: tzinfo = UTC

    def next_after(self, moment: float) -> float | None:
        """The first such moment after another one; None if there is none in five years."""
        at = _Search(math.floor(moment) + 1, self.zone)
        last = at.local.year + _LONGEST_YEARS
        while at.local.year <= last:
            if (
                at.advance(lambda t: t.month in self.months, _month_start, _next_month, lambda t: t.month == 1)
                and at.advance(self._day_fits, _day_start, _next_day, lambda t: t.day == 1)
                and at.advance(lambda t: t.hour in self.hours, _hour_start, _later(3600), lambda t: t.hour == 0)
                and at.advance(lambda t: t.minute in self.minutes, _minute_start, _later(60), lambda t: t.minute == 0)
                and at.advance(lambda t: t.second == 0, _same, _later(1), lambda t: t.second == 0)
            ):
                return float(at.moment)
        return None

    def _day_fits(self, at: datetime) -> bool:
        """If both kinds of days are restricted, either is enough."""
        day, weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return day and weekday if self.any_day or self.any_weekday else day or weekday


@dataclass(frozen=True)
class Interval:
    """`@every`: that long after the moment before."""

    seconds: float

    def next_after(self, moment: float) -> float:
        return math.floor(moment) + self.seconds


def parse(text: str, zone: tzinfo = UTC) -> Schedule | Interval:
    """Raises CronError with the words of kube-apiserver."""
    if not text:
        raise CronError("empty spec string")
    if text.startswith(_EVERY):
        return Interval(_duration(text))
    if text.startswith("@") and text not in _SHORT:
        raise CronError(f"unrecognized descriptor: {text}")
    fields = _SHORT.get(text, text).split()
    if len(fields) != len(_FIELDS):
        raise CronError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{' '.join(fields)}]")
    read = [_field(field, *bounds) for field, bounds in zip(fields, _FIELDS, strict=True)]
    (minutes, _), (hours, _), (days, any_day), (months, _), (weekdays, any_weekday) = read
    return Schedule(minutes, hours, days, months, weekdays, any_day=any_day, any_weekday=any_weekday, zone=zone)


class _Search:
    """A moment that moves forward, and what the clock of the zone shows then."""

    def __init__(self, moment: int, zone: tzinfo) -> None:
        self.moment = moment
        self._zone = zone
        self._moved = False

    @property
    def local(self) -> datetime:
        return datetime.fromtimestamp(self.moment, self._zone).replace(tzinfo=None)

    def advance(
        self,
        fits: Callable[[datetime], bool],
        start: Callable[[_Search], None],
        step: Callable[[_Search], None],
        wraps: Callable[[datetime], bool],
    ) -> bool:
        """Step until it fits; False if a larger unit begins on the way. The first step of all is from a start."""
        while not fits(self.local):
            if not self._moved:
                self._moved = True
                start(self)
            before = self.moment
            step(self)
            if self.moment <= before:  # a zone that changed sides of the date line has left out a whole day
                self.moment = before + 86_400
            if wraps(self.local):
                return False
        return True

    def show(self, local: datetime) -> None:
        """Go to the moment at which the clock shows this; where there is none or there are two, to one beside it."""
        shown = int(local.replace(tzinfo=UTC).timestamp())
        self.moment = shown - self._offset(shown - self._offset(shown))

    def _offset(self, moment: int) -> int:
        offset = datetime.fromtimestamp(moment, self._zone).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())


def _month_start(at: _Search) -> None:
    at.show(at.local.replace(day=1, hour=0, minute=0, second=0))


def _next_month(at: _Search) -> None:
    local = at.local
    year, month = (local.year, local.month + 1) if local.month < len(_MONTHS) else (local.year + 1, 1)
    at.show(local.replace(year=year, month=month, day=1) + timedelta(days=local.day - 1))


def _day_start(at: _Search) -> None:
    at.show(at.local.replace(hour=0, minute=0, second=0))


def _next_day(at: _Search) -> None:
    """To the start of the next day, which is not midnight where a change of the clock leaves that out. (There the
    library can go back to the day before, again and again.)"""
    at.show(at.local + timedelta(days=1))
    local = at.local
    if local.hour > _NOON:
        at.moment += (24 - local.hour) * 3600
    elif local.hour:
        at.moment -= local.hour * 3600
        if at.local.day != local.day:
            at.moment += local.hour * 3600


def _hour_start(at: _Search) -> None:
    at.show(at.local.replace(minute=0, second=0))


def _minute_start(at: _Search) -> None:
    at.moment -= at.moment % 60


def _same(_: _Search) -> None:
    pass


def _later(seconds: int) -> Callable[[_Search], None]:
    def step(at: _Search) -> None:
        at.moment += seconds

    return step


def _field(field: str, least: int, most: int, known: dict[str, int]) -> tuple[frozenset[int], bool]:
    """The values of a field, and whether it leaves its unit open."""
    values: set[int] = set()
    unrestricted = False
    for part in (part for part in field.split(",") if part):
        found, free = _range(part, least, most, known)
        values |= found
        unrestricted = unrestricted or free
    return frozenset(values), unrestricted


def _range(part: str, least: int, most: int, known: dict[str, int]) -> tuple[set[int], bool]:
    whole, *steps = part.split("/")
    low, *highs = whole.split("-")
    free = low in ("*", "?")
    if free:
        first, last = least, most
    else:
        first = _number(low, known)
        if len(highs) > 1:
            raise CronError(f"too many hyphens: {part}")
        last = _number(highs[0], known) if highs else first
    step = 1
    if len(steps) > 1:
        raise CronError(f"too many slashes: {part}")
    if steps:
        step = _number(steps[0], {})
        last = last if free or highs else most
    if first < least:
        raise CronError(f"beginning of range ({first}) below minimum ({least}): {part}")
    if last > most:
        raise CronError(f"end of range ({last}) above maximum ({most}): {part}")
    if first > last:
        raise CronError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
    if step == 0:
        raise CronError(f"step of range should be a positive number: {part}")
    return set(range(first, last + 1, step)), free and step == 1


def _number(text: str, known: dict[str, int]) -> int:
    if text.lower() in known:
        return known[text.lower()]
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise CronError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    number = int(text)
    if number < 0:
        raise CronError(f"negative number ({number}) not allowed: {text}")
    return number


def _duration(text: str) -> float:
    """Whole seconds, at least one."""
    given = text.removeprefix(_EVERY)
    left = given[1:] if given[:1] in ("-", "+") else given
    if not left:
        raise CronError(f'failed to parse duration {text}: time: invalid duration "{given}"')
    seconds = 0.0
    while left and left != "0":
        amount = _AMOUNT.match(left)
        if amount is None:
            raise CronError(f'failed to parse duration {text}: time: invalid duration "{given}"')
        unit = re.split(r"[.0-9]", left[amount.end() :], maxsplit=1)[0]
        if unit not in _UNITS:
            wrong = f'unknown unit "{unit}"' if unit else "missing unit"
            raise CronError(f'failed to parse duration {text}: time: {wrong} in duration "{given}"')
        seconds += float(amount[0]) * _UNITS[unit]
        left = left[amount.end() + len(unit) :]
    if seconds >= _LARGEST_SECONDS:
        raise CronError(f'failed to parse duration {text}: time: invalid duration "{given}"')
    return 1.0 if given.startswith("-") else max(1.0, float(math.floor(seconds + 1e-9)))
