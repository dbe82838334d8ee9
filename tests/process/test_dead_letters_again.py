"""Dead letters land again where the pipeline reads, or beside it: once it can read them, each counts once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import DataType, Pipeline, col, count
from headrace.model.time import Duration, to_instant
from headrace.pipeline.sources import CsvDialect, NameOrder
from headrace.runs.client.recording import make_change
from headrace.runs.dropped_records import land_rejected
from headrace.runs.option_values import parse_span
from headrace.runs.options import Mode, RunOptions
from headrace.runs.plan import CutOver
from headrace.runs.replay_clock import ReplayClock
from headrace.runs.restore import InputGoneError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.expiry import expire
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.store import open_store
from tests.building import change_pipeline
from tests.process.clicks import CLICKS, START
from tests.process.executors import ExecutorUnderTest
from tests.reading import read

END_OF_TIME = datetime.max.replace(tzinfo=UTC)
CLICKS_ALONE = replace(CLICKS, what={"clicks": count()})
"""It reads prices, which no result needs."""
GOOD = [("ann", 0, "1"), ("bob", 5, "2"), ("bob", 200, "3")]
BAD = [("ann", 7, "4 EUR"), ("cid", 8, "five")]

LINES = {
    "json": lambda user, moment, price: f'{{"user": "{user}", "at": "{moment}", "price": {price}}}\n',
    "csv": lambda user, moment, price: f"{price},{user},{moment}\n",
}
HEADS = {"json": "", "csv": "price,user,at\n"}
QUOTES = {"json": '"', "csv": ""}


def land(root: Path, kind: str) -> None:
    folder = root / "landing" / "clicks"
    folder.mkdir(parents=True)
    quote = QUOTES[kind]
    for number, some in enumerate(([GOOD[0], BAD[0], GOOD[1]], [BAD[1], GOOD[2]])):
        lines = [(user, minute, price if price.isdigit() else quote + price + quote) for user, minute, price in some]
        text = "".join(LINES[kind](u, (START + timedelta(minutes=m)).isoformat(), p) for u, m, p in lines)
        (folder / f"{number}.txt").write_text(HEADS[kind] + text)


def land_later(root: Path) -> None:
    """One more file, two days later."""
    line = LINES["json"]("dan", (START + timedelta(days=2)).isoformat(), 1)
    (root / "landing" / "clicks" / "z.txt").write_text(line)


def count_clicks(pipeline: Pipeline, root: str, ref: str = "main") -> dict[tuple[str, int], int]:
    rows = read(pipeline, root, "current", ref).to_pylist()
    return {(row["user"], row["window_start"].hour): row["clicks"] for row in rows}


TRUTH = {("ann", 0): 2, ("bob", 0): 1, ("bob", 3): 1, ("cid", 0): 1}


@pytest.mark.parametrize("kind", list(LINES))
def test_a_schema_that_is_mended_reads_what_was_rejected(
    executor: ExecutorUnderTest, tmp_path: Path, kind: str
) -> None:
    """The column of the prices was declared as one of numbers, and no result needs it."""
    root = tmp_path.as_uri()
    broken_pipeline = change_pipeline(CLICKS_ALONE, source=replace(CLICKS.source, format=kind))
    schema = {name: kind for name, kind in CLICKS.source.schema.items() if name != "price"}
    mended_pipeline = change_pipeline(broken_pipeline, source=replace(broken_pipeline.source, schema=schema))
    land(tmp_path, kind)
    assert executor.process(broken_pipeline, root, RunOptions("first", publish=True)).counts["rejected"] == 2

    found_landing = land_rejected(mended_pipeline, root, destination=CLICKS.source.path)
    assert (found_landing.records, found_landing.left) == (2, {})
    assert executor.process(mended_pipeline, root, RunOptions("second", publish=True)).counts["accepted"] == 2
    assert count_clicks(mended_pipeline, root) == TRUTH
    assert land_rejected(mended_pipeline, root, destination=CLICKS.source.path).records == 0
    assert not executor.process(mended_pipeline, root, RunOptions("third", publish=True)).epochs
    assert count_clicks(mended_pipeline, root) == TRUTH


def test_another_definition_reads_them_under_a_root_of_their_own(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """Prices are text now, and a result needs them: the rest would have to be computed anew."""
    root = tmp_path.as_uri()
    land(tmp_path, "json")
    executor.process(CLICKS, root, RunOptions("first", publish=True))
    text = replace(CLICKS.source, schema={**CLICKS.source.schema, "price": DataType.STRING})
    mended_pipeline = change_pipeline(CLICKS, source=text, what={"clicks": count(), "longest": col("price").max()})
    assert land_rejected(mended_pipeline, root).records == 2
    assert land_rejected(mended_pipeline, root).records == 0
    rejected_result = executor.process(mended_pipeline, f"{root}/rejected", RunOptions("beside", mode=Mode.BATCH))
    assert (rejected_result.counts["accepted"], rejected_result.counts["rejected"]) == (2, 0)
    part, rest = count_clicks(mended_pipeline, f"{root}/rejected"), count_clicks(CLICKS, root)
    assert {key: part.get(key, 0) + rest.get(key, 0) for key in {**part, **rest}} == TRUTH


def test_where_names_have_gone_on_a_full_sweep_finds_them(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    schema = {name: kind for name, kind in CLICKS.source.schema.items() if name != "price"}
    broken_pipeline = change_pipeline(CLICKS_ALONE, source=replace(CLICKS.source, names=NameOrder.ORDERED, look_back=0))
    mended_pipeline = change_pipeline(broken_pipeline, source=replace(broken_pipeline.source, schema=schema))
    land(tmp_path, "json")
    for file in (tmp_path / "landing" / "clicks").iterdir():
        file.rename(file.with_name(f"visits-{file.name}"))
    executor.process(broken_pipeline, root, RunOptions("first", publish=True))
    found_landing = land_rejected(mended_pipeline, root, destination=CLICKS.source.path)
    assert (found_landing.records, found_landing.needs_full_sweep) == (2, True)
    assert not executor.process(mended_pipeline, root, RunOptions("second")).epochs
    executor.process(mended_pipeline, root, RunOptions("third", full_sweep=True))
    assert count_clicks(mended_pipeline, root) == TRUTH


SCHEMA = {name: kind for name, kind in CLICKS.source.schema.items() if name != "price"}
MENDED_CLICKS = change_pipeline(CLICKS_ALONE, source=replace(CLICKS.source, schema=SCHEMA))
ALL = RunOptions("all", publish=True)


@pytest.fixture
def corrected_root(executor: ExecutorUnderTest, tmp_path: Path) -> str:
    """A root where dead letters have landed again where the pipeline reads, and count."""
    root = tmp_path.as_uri()
    land(tmp_path, "json")
    executor.process(CLICKS_ALONE, root, ALL)
    land_rejected(MENDED_CLICKS, root, destination=CLICKS.source.path)
    executor.process(MENDED_CLICKS, root, ALL)
    assert count_clicks(MENDED_CLICKS, root) == TRUTH
    return root


def test_a_backfill_counts_them_once(executor: ExecutorUnderTest, corrected_root: str) -> None:
    """The definition that it computes with reads them where they came from."""
    for number in range(2):
        executor.backfill(MENDED_CLICKS, corrected_root, RunOptions(f"again-{number}", branch="anew"))
        assert count_clicks(MENDED_CLICKS, corrected_root, "anew") == TRUTH
        make_change(Catalog(open_store(corrected_root), "clicks"), CutOver("anew"), run_id="promote")
        assert count_clicks(MENDED_CLICKS, corrected_root) == TRUTH
        assert not executor.process(MENDED_CLICKS, corrected_root, replace(ALL, full_sweep=True)).epochs
    assert land_rejected(MENDED_CLICKS, corrected_root, destination=CLICKS.source.path).records == 0


def test_a_backfill_from_behind_the_dead_letters_reads_them_where_they_landed(
    executor: ExecutorUnderTest, corrected_root: str, tmp_path: Path
) -> None:
    """Its fork has read the files that they came from. If the file of them is gone, it says so."""
    land_later(tmp_path)
    executor.process(MENDED_CLICKS, corrected_root, ALL)
    span = parse_span((START + timedelta(days=2)).isoformat(), None)
    executor.backfill(MENDED_CLICKS, corrected_root, RunOptions("later", branch="later", span=span))
    assert count_clicks(MENDED_CLICKS, corrected_root, "later") == {**TRUTH, ("dan", 0): 1}
    second_file, _ = (tmp_path / "landing" / "clicks").glob("again-rejected-*")
    catalog = Catalog(open_store(corrected_root), "clicks")
    early = catalog.ancestor_at(catalog.head().refs["main"], 1)
    assert early is not None
    catalog.fork("early", early)
    second_file.unlink()
    with pytest.raises(InputGoneError, match="again-rejected-"):
        executor.backfill(MENDED_CLICKS, corrected_root, RunOptions("early", branch="early"))


def test_a_run_after_a_rollback_counts_them_once(executor: ExecutorUnderTest, corrected_root: str) -> None:
    catalog = Catalog(open_store(corrected_root), "clicks")
    catalog.rollback("main", None, "once more")
    executor.process(MENDED_CLICKS, corrected_root, ALL)
    assert count_clicks(MENDED_CLICKS, corrected_root) == TRUTH


@pytest.mark.parametrize(
    "mode",
    [{"mode": Mode.BATCH}, {"mode": Mode.REPLAY, "clock": ReplayClock(to_instant(START), Duration(3_600_000_000))}],
)
def test_a_batch_and_a_replay_of_what_has_landed_count_them_once(
    executor: ExecutorUnderTest, corrected_root: str, mode: dict[str, Any]
) -> None:
    executor.process(MENDED_CLICKS, corrected_root, RunOptions("anew", branch="anew", **mode))
    assert count_clicks(MENDED_CLICKS, corrected_root, "anew") == TRUTH


def test_who_else_reads_there_is_not_disturbed(executor: ExecutorUnderTest, corrected_root: str) -> None:
    other = replace(MENDED_CLICKS, name="others")
    executor.process(other, corrected_root, ALL)
    assert count_clicks(other, corrected_root) == TRUTH


def test_a_run_that_falls_back_leaves_out_what_it_reads_again(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """State since the second epoch is broken: its dead letter is read where it came from; the file of it is gone."""
    root = tmp_path.as_uri()
    land(tmp_path, "json")
    executor.process(CLICKS_ALONE, root, RunOptions("first", publish=True, max_epochs=1))
    executor.process(CLICKS_ALONE, root, RunOptions("second"))
    assert land_rejected(MENDED_CLICKS, root, destination=CLICKS.source.path, ref="main").files == 2
    executor.process(MENDED_CLICKS, root, RunOptions("third"))
    assert count_clicks(MENDED_CLICKS, root) == TRUTH
    for file in (tmp_path / "clicks" / "data").glob("0000000[1-9]-*/state-*"):
        file.unlink()
    (second_file,) = (tmp_path / "landing" / "clicks").glob("again-rejected-00000001-*")
    second_file.unlink()
    land_later(tmp_path)
    assert "fell back to snapshot" in "".join(executor.process(MENDED_CLICKS, root, RunOptions("fourth")).warnings)
    assert count_clicks(MENDED_CLICKS, root) == {**TRUTH, ("dan", 0): 1}


def test_what_landed_again_is_read_after_its_dead_letters_have_expired(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    """The log of dead letters has let go of their epochs; the oldest snapshot that is kept still knows them. Once that
    has expired too, the next run says that nobody knows.
    """
    root, files = tmp_path.as_uri(), 70  # more than a log keeps beside its index
    folder = tmp_path / "landing" / "clicks"
    folder.mkdir(parents=True)
    for number in range(files):
        line = LINES["json"]("ann", (START + timedelta(seconds=number)).isoformat(), '"four"')
        (folder / f"{number:03}.txt").write_text(line)
    executor.process(CLICKS_ALONE, root, replace(ALL, files_per_epoch=1))
    assert land_rejected(MENDED_CLICKS, root, destination=CLICKS.source.path).records == files
    catalog = Catalog(open_store(root), "clicks")
    few = RunOptions("few", publish=True, files_per_epoch=20, max_epochs=1, full_sweep=True)
    expire(catalog, Keep(1), END_OF_TIME)
    for counts in (20, 40):
        executor.process(MENDED_CLICKS, root, few)
        assert count_clicks(MENDED_CLICKS, root) == {("ann", 0): counts}

    expire(catalog, Keep(1), END_OF_TIME)
    (warning,) = executor.process(MENDED_CLICKS, root, few).warnings
    unknown = 64 - 40  # the last six are in no leaf of the index yet, so no expiry cuts them off
    assert f"{unknown} files of records that landed again, such as landing/clicks/again-rejected-00000040" in warning
    assert count_clicks(MENDED_CLICKS, root) == {("ann", 0): files - unknown}
    for file in sorted(folder.glob("again-*"))[40:64]:
        file.rename(file.with_name(f"mended-{file.name}"))
    assert executor.process(MENDED_CLICKS, root, replace(ALL, full_sweep=True)).warnings == ()
    assert count_clicks(MENDED_CLICKS, root) == {("ann", 0): files}


def test_a_record_whose_quote_is_never_closed_takes_no_other_with_it(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    """Each file has one at its end, in which the rest of a file with others would be."""
    root = tmp_path.as_uri()
    tested_pipeline = change_pipeline(CLICKS_ALONE, source=replace(CLICKS.source, format="csv"))
    land(tmp_path, "csv")
    for file in (tmp_path / "landing" / "clicks").iterdir():
        file.write_text(file.read_text() + f'1,"dan,{START.isoformat()}\n2,eve,{START.isoformat()}\n')
    assert executor.process(tested_pipeline, root, RunOptions("first", publish=True)).counts["rejected"] == 4
    found_landing = land_rejected(tested_pipeline, root, destination=CLICKS.source.path)
    assert (found_landing.files, found_landing.records, sum(found_landing.left.values())) == (2, 2, 2)
    (reason,) = found_landing.left
    assert "a quote that is not closed" in reason
    assert executor.process(tested_pipeline, root, RunOptions("second", publish=True)).counts["rejected"] == 2
    assert land_rejected(tested_pipeline, root, destination=CLICKS.source.path).already_landed == 2


GOOD_LINES = "".join(f"{number},ann,{START.isoformat()},fine\n" for number in range(100)).encode()
OTHER_DIALECTS = {
    CsvDialect(encoding="cp1252"): "{},bob,{},Tromsø\n",
    CsvDialect(delimiter=";"): "{};bob;{};Oslo\n",
}


@pytest.mark.parametrize("lands_beside", [False, True])
@pytest.mark.parametrize("other", OTHER_DIALECTS)
def test_many_records_of_another_dialect_never_stop_who_reads_them_again(
    executor: ExecutorUnderTest, tmp_path: Path, other: CsvDialect, lands_beside: bool
) -> None:
    """Most of their file is right, so they are dead letters. In a file that they land in they are all that there is."""
    root, folder = tmp_path.as_uri(), tmp_path / "landing" / "clicks"
    tested_pipeline = change_pipeline(CLICKS_ALONE, source=replace(CLICKS.source, format="csv"))
    folder.mkdir(parents=True)
    lines = "".join(OTHER_DIALECTS[other].format(number, START.isoformat()) for number in range(30))
    (folder / "1.csv").write_bytes(b"price,user,at,note\n" + GOOD_LINES + lines.encode(other.encoding))
    assert executor.process(tested_pipeline, root, RunOptions("first", publish=True)).counts["rejected"] == 30

    found_landing = land_rejected(tested_pipeline, root, destination=None if lands_beside else CLICKS.source.path)
    assert (found_landing.records, found_landing.left) == (30, {})
    landing_root = f"{root}/rejected" if lands_beside else root
    counts = executor.process(tested_pipeline, landing_root, RunOptions("second", publish=True)).counts
    assert (counts["accepted"], counts["rejected"]) == (0, 30)
    assert land_rejected(tested_pipeline, root, destination=None if lands_beside else CLICKS.source.path).records == 0
    if lands_beside and other.delimiter == ",":  # else the header that they landed with is in the first dialect
        mended_pipeline = change_pipeline(tested_pipeline, source=replace(tested_pipeline.source, dialect=other))
        batch_options = RunOptions("third", mode=Mode.BATCH, branch="anew")
        assert executor.process(mended_pipeline, landing_root, batch_options).counts["accepted"] == 30


def test_a_record_that_the_encoding_of_today_does_not_have_stays(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """The source was said to be UTF-8, which some of its records are."""
    root, folder = tmp_path.as_uri(), tmp_path / "landing" / "clicks"
    tested_pipeline = change_pipeline(CLICKS_ALONE, source=replace(CLICKS.source, format="csv"))
    mended_pipeline = change_pipeline(
        tested_pipeline, source=replace(tested_pipeline.source, dialect=CsvDialect(encoding="cp1252"))
    )
    folder.mkdir(parents=True)
    lines = "".join(f"{city},ann,{START.isoformat()}\n" for city in ("Tromsø", "Kōbe"))
    (folder / "1.csv").write_text(f"price,user,at\n{lines}", encoding="utf-8")
    assert executor.process(tested_pipeline, root, RunOptions("first", publish=True)).counts["rejected"] == 2
    found_landing = land_rejected(mended_pipeline, root)
    assert (found_landing.records, [*found_landing.left.values()]) == (1, [1])
    assert "a letter that the encoding of the source does not have" in next(iter(found_landing.left))
