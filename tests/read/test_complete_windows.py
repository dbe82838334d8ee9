"""Which windows are complete, and which were corrected since it was told last."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import headrace as hr
from headrace.model.time import parse_instant, to_instant
from headrace.model.windows import Window, WindowFn
from headrace.read.diff import appended_rows
from headrace.read.diff.appended_rows import AnnouncedWindows, WindowNews, window_news
from headrace.runs.client.handle import PipelineHandle

DAY = datetime(2024, 1, 1, tzinfo=UTC)


class Story:
    """Sales per hour, whose windows are told of again and again."""

    def __init__(self, root: Path, where: WindowFn | None = None) -> None:
        self.root, self.where = root, where or hr.FixedWindows("1h")
        source = hr.json("landing/sales", {"shop": str, "at": datetime}).event_time("at", bound="0s")
        self.pipeline = hr.Pipeline(
            "sales",
            source,
            key="shop",
            what={"sales": hr.count()},
            where=self.where,
            when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
            how=hr.retracting("30d"),
            executor="local",
        )
        self.last_announcement: AnnouncedWindows | None = None
        self.files = 0

    @property
    def handle(self) -> PipelineHandle:
        return hr.open(self.root.as_uri())[self.pipeline]

    def land(self, *minutes: int) -> None:
        """A file of sales so many minutes after midnight, which readers see then."""
        folder = self.root / "landing" / "sales"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"shop": "a", "at": (DAY + timedelta(minutes=each)).isoformat()}) for each in minutes]
        self.files += 1
        (folder / f"{self.files:04}.jsonl").write_text("\n".join(lines) + "\n")
        self.handle.run()

    def news(self, at_first: int | None = None) -> WindowNews:
        """What is new, told with it."""
        announced_before = (
            None
            if self.last_announcement is None
            else AnnouncedWindows.from_json(json.loads(json.dumps(self.last_announcement.to_json())))
        )
        news = window_news(self.handle, self.where, announced_before, at_first=at_first)
        self.last_announcement = news.announced
        return news


def hours(windows: Sequence[Window]) -> list[int]:
    """When windows begin, in hours after midnight."""
    return [(window.start - to_instant(DAY)) // 3_600_000_000 for window in windows]


def told_hours(news: WindowNews) -> tuple[list[int], list[int]]:
    return hours(news.completed), hours(news.corrected)


def test_a_window_is_told_of_once_it_is_complete_and_when_it_is_corrected(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.land(10, 50, 70)
    assert told_hours(story.news()) == ([0], [])
    assert told_hours(story.news()) == ([], []), "nothing has moved"
    story.land(80)
    assert told_hours(story.news()) == ([], []), "the second hour has another row, and is not complete"
    story.land(190)
    news = story.news()
    assert told_hours(news) == ([1, 2], []), "also a window without a sale"
    assert news.partition_keys() == ["2024-01-01T01:00:00", "2024-01-01T02:00:00"]
    story.land(20)
    assert told_hours(story.news()) == ([], [0]), "late"
    story.land(30, 250)
    assert told_hours(story.news()) == ([3], [0])


def test_what_a_rollback_takes_back_is_corrected_and_completes_again(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.land(10, 70)
    first = story.handle.catalog.head().refs["published"]
    story.land(20, 130)
    assert told_hours(story.news()) == ([0, 1], [])
    story.handle.rollback(to=first)
    assert told_hours(story.news()) == ([], [0]), "of the second hour there is no other row than there was"
    story.handle.run()
    assert told_hours(story.news()) == ([1], [0])
    story.handle.rollback(to="beginning")
    assert told_hours(story.news()) == ([], [0, 1]), "readers see nothing"
    assert story.last_announcement == AnnouncedWindows(None, parse_instant("-inf"))
    assert told_hours(story.news()) == ([], [])


def test_at_first_the_newest_are_told_of(tmp_path: Path) -> None:
    story = Story(tmp_path)
    assert told_hours(story.news()) == ([], []), "readers see nothing so far"
    story.last_announcement = None
    story.land(10, 70, 130, 190)
    assert told_hours(story.news(at_first=0)) == ([], [])
    story.last_announcement = None
    assert told_hours(story.news(at_first=2)) == ([1, 2], [])


def test_where_nobody_knows_what_was_told_all_are_told_of_again(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.land(10, 70)
    story.news()
    story.last_announcement = AnnouncedWindows("0123456789abcdef", parse_instant("2024-01-01T01:00:00Z"))
    story.land(130)
    news = story.news()
    assert (told_hours(news), news.is_guess) == (([1], [0]), True)


def test_where_nothing_is_published_and_what_was_told_has_expired_there_is_nothing_to_tell(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.land(10, 70)
    story.handle.rollback(to="beginning")
    story.last_announcement = AnnouncedWindows("0123456789abcdef", parse_instant("2024-01-01T01:00:00Z"))
    news = story.news(at_first=0)
    assert (told_hours(news), news.is_guess) == (([], []), True)
    assert news.announced == AnnouncedWindows(None, parse_instant("-inf"))


def test_only_windows_with_rows_are_told_of_where_others_are_many_or_depend_on_keys(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path / "sessions", hr.Sessions("10m"))
    story.land(10, 15, 100)
    (session,) = story.news().completed
    assert (session.start, session.end) == tuple(to_instant(DAY + timedelta(minutes=m)) for m in (10, 25))
    story.land(300)
    assert len(story.news().completed) == 1
    days = Story(tmp_path / "days", hr.CalendarWindows("day"))
    days.land(10, 24 * 60)
    days.news()
    days.land(24 * 60 * 400)
    news = days.news()
    assert len(news.completed) == 399
    assert news.partition_keys()[-1] == "2025-02-03T00:00:00"
    ends = Story(tmp_path / "quiet")
    ends.land(10, 70)
    ends.news()
    ends.land(appended_rows.MOST_QUIET * 60 + 600)
    assert len(ends.news().completed) == appended_rows.MOST_QUIET


def test_a_global_window_is_never_complete(tmp_path: Path) -> None:
    story = Story(tmp_path, hr.GlobalWindows())
    story.pipeline = hr.Pipeline(
        "sales",
        story.pipeline.input,
        key="shop",
        what={"sales": hr.count()},
        where=hr.GlobalWindows(),
        when=hr.Repeatedly(hr.AfterCount(1)),
        how=hr.retracting(),
        executor="local",
    )
    story.land(10, 70)
    assert told_hours(story.news()) == ([], [])
    story.land(90)
    assert told_hours(story.news()) == ([], [])
