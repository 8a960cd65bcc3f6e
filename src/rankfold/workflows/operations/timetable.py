"""Times at which a workflow runs again: by the five fields of cron, or at an interval from some time on.

All times are UTC: a day has 24 hours throughout the year, and times mean the same on every machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator

from rankfold.pipeline.errors import InputError

FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)

SHAPE = 'five fields, minute hour day month weekday, such as "0 3 * * 1" for Mondays at 03:00'

INTERVALS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}

YEARS = 41
"""Largest number of years to search for the next time: the 29th of February on a Sunday may be forty years
away."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Times by the five fields of cron: the sets of numbers that each field allows; Sunday is 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    """True if a day matches by day of the month or by weekday: cron does so if both fields are restricted."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse the five fields of cron; raises ``ValueError`` that states the mistake and the format.

        >>> cron = Cron.read("0 3 * * 1")
        >>> cron.after(datetime(2026, 11, 22, 8, 30, tzinfo=UTC)).isoformat()
        '2026-11-23T03:00:00+00:00'
        """
        fields = text.split()
        if len(fields) != len(FIELDS):
            raise ValueError(f"{text!r} has {len(fields)} fields: write {SHAPE}")
        minutes, hours, days, months, week = (
            _numbers(field, *about) for field, about in zip(fields, FIELDS, strict=True)
        )
        either = not (fields[2].startswith("*") or fields[4].startswith("*"))
        cron = cls(minutes, hours, days, months, frozenset(day % 7 for day in week), either)
        if cron._next(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise ValueError(f"{text!r} never comes: no such month has day {fields[2]}")
        return cron

    def after(self, moment: datetime) -> datetime:
        """First matching time later than ``moment``; both are in UTC."""
        time = self._next(moment)
        assert time is not None  # noqa: S101  # tried when it was read
        return time

    def _next(self, moment: datetime) -> datetime | None:
        start = (moment + timedelta(minutes=1)).replace(second=0, microsecond=0)
        day = start.replace(hour=0, minute=0)
        for _ in range(366 * YEARS):
            if self._fits(day):
                times = (
                    day.replace(hour=hour, minute=minute)
                    for hour in sorted(self.hours)
                    for minute in sorted(self.minutes)
                )
                if first := next((time for time in times if time >= start), None):
                    return first
            day += timedelta(days=1)
        return None

    def _fits(self, day: datetime) -> bool:
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        either = by_month or by_week
        return day.month in self.months and (either if self.either else by_month and by_week)


def _numbers(field: str, name: str, low: int, high: int) -> frozenset[int]:
    """Parse one field of cron (``*``, ``3``, ``1-5``, ``*/15``, and lists of them) to the set of its numbers.

    ``name`` is that of the field in messages; ``low`` and ``high`` are its smallest and largest number.
    """
    numbers: set[int] = set()
    for part in field.split(","):
        item = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?", part)
        if not item:
            raise ValueError(f"{part!r} is no {name}: write a number, *, 1-5, */15, or a list of them, 1,3")
        first = low if item[1] is None else int(item[1])
        last = high if item[1] is None or (item[3] and not item[2]) else int(item[2] or item[1])
        if not (low <= first <= last <= high) or item[3] == "0":
            raise ValueError(f"{part!r} is no {name}: those are {low} to {high}, the lower one first")
        numbers |= {*range(first, last + 1, int(item[3] or 1))}
    return frozenset(numbers)


def read_every(text: str) -> timedelta:
    """Parse an interval such as 6h; raises ValueError that states the format.

    >>> [str(read_every(text)) for text in ("90m", "6h", "1d", "2w")]
    ['1:30:00', '6:00:00', '1 day, 0:00:00', '14 days, 0:00:00']
    """
    interval = re.fullmatch(r"([1-9]\d{0,4})([mhdw])", text)
    if not interval:
        raise ValueError(f"{text!r} is no time between two runs: write a number and m, h, d or w, such as 1d")
    return int(interval[1]) * INTERVALS[interval[2]]


def read_time(text: str) -> datetime:
    """Parse a time, UTC unless it has a zone; raises ValueError that states the format."""
    try:
        # Python takes any character between the date and the time, a line end too.
        moment = datetime.fromisoformat(text if re.fullmatch(r"[-+:.,\w ]+", text) else "")
    except ValueError:
        raise ValueError(f"{text!r} is no time: write it as 2026-12-01T03:00, in UTC") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def format_time(moment: datetime) -> str:
    """Format a time as ``read_time`` accepts it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_with(check: Callable[[str], object]) -> AfterValidator:
    def look(value: str) -> str:
        check(value)
        return " ".join(value.split())  # it is part of one line of a script

    return AfterValidator(look)


class Schedule(BaseModel):
    """An endless sequence of times: by ``cron``, or at the interval ``every`` from ``begin`` on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cron: Annotated[str, _check_with(Cron.read)] | None = None
    every: Annotated[str, _check_with(read_every)] | None = None
    begin: Annotated[str, _check_with(read_time)] | None = None

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if (self.cron is None) == (self.every is None):
            raise ValueError('say when it runs: cron: "0 3 * * 1", or every: 1d, one of them')
        if self.begin is not None and self.every is None:
            raise ValueError("begin: goes with every:, a cron says itself when it begins")
        return self

    @classmethod
    def from_options(cls, cron: str | None, every: str | None, begin: str | None) -> Self:
        """Make a schedule from options of the command line; raises InputError."""
        try:
            return cls(cron=cron, every=every, begin=begin)
        except ValidationError as error:
            first = error.errors()[0]
            message = first["msg"].removeprefix("Value error, ")
            raise InputError(f"--{first['loc'][0]}: {message}" if first["loc"] else message) from None

    def after(self, moment: datetime) -> datetime:
        """First time of the schedule later than ``moment``; both are in UTC."""
        if self.cron is not None:
            return Cron.read(self.cron).after(moment)
        step = read_every(self.every or "")
        begin = read_time(self.begin) if self.begin else moment
        return begin + max(0, math.floor((moment - begin) / step) + 1) * step

    def options(self) -> list[str]:
        """The options of ``rankfold schedule`` that describe it."""
        options = {"--cron": self.cron, "--every": self.every, "--begin": self.begin}
        return [word for name, value in options.items() if value is not None for word in (name, value)]

    def __str__(self) -> str:
        """The schedule in words, for messages."""
        if self.cron is not None:
            return f'at "{self.cron}"'
        return f"every {self.every}" + (f" from {self.begin} on" if self.begin else "")
