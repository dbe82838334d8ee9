"""A small pipeline over landed clicks, and what its answer must be."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace import (
    AfterCount,
    AfterWatermark,
    DataType,
    Expectation,
    FileSource,
    FixedWindows,
    Input,
    Pipeline,
    Sessions,
    col,
    count,
    expect,
    retracting,
)
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.windows import WindowFn

START = datetime(2026, 1, 1, tzinfo=UTC)
USERS = 20
FILES = 5


def clicks(
    where: WindowFn | None = None,
    expectations: tuple[Expectation, ...] = (),
    name: str = "clicks",
    **options: Any,
) -> Pipeline:
    """The pipeline; ``options`` are further arguments of it."""
    return Pipeline(
        name=name,
        input=Input(
            FileSource(
                "landing/clicks",
                "json",
                {"user": DataType.STRING, "at": DataType.TIMESTAMP, "price": DataType.INT},
                max_files=1,
            ),
            EventTime(col("at"), BoundedOutOfOrderness(timedelta(minutes=10))),
        ),
        key={"user": col("user")},
        where=where or FixedWindows(timedelta(hours=1)),
        when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
        how=retracting(allowed_lateness=timedelta(days=1)),
        what={"clicks": count(), "spent": col("price").sum()},
        expectations=expectations,
        **options,
    )


CLICKS = clicks()
SESSIONS = clicks(Sessions(timedelta(minutes=30)), name="click_sessions")
MODEST = (expect("column_values_to_be_between", column="spent", min_value=0, max_value=1000),)


def records(file: int, users: int = USERS) -> list[dict[str, object]]:
    """Clicks of one file: every user, spread over an hour and a half that overlaps the files beside it."""
    rows = []
    for user in range(users):
        for number in range(4):
            moment = START + timedelta(minutes=60 * file + (user * 7 + number * 23) % 90)
            rows.append({"user": f"u{user}", "at": moment.isoformat(), "price": user + number + file})
    return rows


def land(root: Path, first: int = 0, last: int = FILES, users: int = USERS) -> None:
    """Land files ``first`` to ``last`` (exclusive) of so many users."""
    folder = root / "landing" / "clicks"
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(first, last):
        lines = "".join(json.dumps(record) + "\n" for record in records(file, users))
        (folder / f"part-{file:05d}.jsonl").write_text(lines)


def truth(last: int = FILES, users: int = USERS) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Clicks and money per user and hour."""
    number: Counter[tuple[str, datetime]] = Counter()
    spent_by_place: Counter[tuple[str, datetime]] = Counter()
    for file in range(last):
        for record in records(file, users):
            moment = datetime.fromisoformat(str(record["at"]))
            place = str(record["user"]), moment.replace(minute=0)
            number[place] += 1
            spent_by_place[place] += int(str(record["price"]))
    return {place: (number[place], spent_by_place[place]) for place in number}
