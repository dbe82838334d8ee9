"""Late records land again: once each, in the source's own format, only what nothing has counted. No Spark."""

import gzip
import io
import json
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace import Input, Pipeline, SlidingWindows
from headrace.cli.main import app
from headrace.errors import BrokenObjectError, LandingAgainError
from headrace_lab.fault_plans import Operation, disturb_stores
from tests.building import change_pipeline
from tests.cli.deployments import PIPELINE_FILE, Deployment, hour

Row = dict[str, Any]


def late(raw: str, minute: int = 10, *, window: int = 1, hours: int = 1, file: str = "landing/clicks/a.jsonl") -> Row:
    """A record of 01:``minute`` that was dropped from the window of ``hours`` that begins at ``window``."""
    return {
        "user": "ann",
        "event_time": hour(1) + timedelta(minutes=minute),
        "window_start": hour(window),
        "window_end": hour(window + hours),
        "reason": "window expired",
        "input": "source",
        "file": file,
        "raw": raw,
    }


def raw(number: int) -> str:
    return json.dumps({"user": "ann", "at": "2026-03-01T01:10:00Z", "amount": number})


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


def land(deployment: Deployment, pipeline: Pipeline | None = None, **options: Any) -> hr.types.LandedLate:
    handle = hr.open(deployment.root, create=True)[pipeline or deployment.pipeline]
    return handle.replay_late(**{"at": "main", **options})


def sliding(deployment: Deployment, hours: int, every: int) -> Pipeline:
    return replace(deployment.pipeline, where=SlidingWindows(timedelta(hours=hours), timedelta(hours=every)))


def landed_files(deployment: Deployment, folder: str = "late/landing/clicks") -> dict[str, bytes]:
    data_by_path = {info.path: deployment.store.read(info.path) for info in deployment.store.list(f"{folder}/")}
    return {path.rpartition("/")[2]: data for path, data in data_by_path.items()}


def test_what_was_late_lands_once_under_a_root_of_its_own(deployment: Deployment) -> None:
    first = deployment.commit(late=[late(raw(2)), late(raw(1)), late(raw(1))])
    deployment.commit()
    landing = land(deployment)
    assert landing == hr.types.LandedLate(
        f"{deployment.root}/late/landing/clicks", files=1, records=3, beside=f"{deployment.root}/late"
    )
    name = f"late-00000000-{first}.jsonl"
    assert landed_files(deployment) == {name: f"{raw(1)}\n{raw(1)}\n{raw(2)}\n".encode()}
    second = deployment.commit(late=[late(raw(3))])
    files_before = landed_files(deployment)
    assert land(deployment) == replace(landing, records=1, already_landed=1)
    assert landed_files(deployment) == {**files_before, f"late-00000002-{second}.jsonl": f"{raw(3)}\n".encode()}
    assert land(deployment) == replace(landing, files=0, records=0, already_landed=2)


def test_a_record_that_some_windows_took_does_not_land(deployment: Deployment) -> None:
    """Windows of two hours begin every hour, so each record is in two."""
    deployment.pipeline = sliding(deployment, 2, 1)
    whole = [late(raw(1), window=window, hours=2) for window in (0, 1)]
    partly = late(raw(2), window=0, hours=2)
    deployment.commit(late=[*whole, partly, *whole, partly, partly])
    landing = land(deployment)
    assert (landing.records, landing.late_in_some_windows) == (2, 3)
    assert [*landed_files(deployment).values()] == [f"{raw(1)}\n{raw(1)}\n".encode()]


def test_what_other_windows_have_dropped_does_not_land(deployment: Deployment) -> None:
    deployment.commit(late=[late(raw(1))])
    with pytest.raises(LandingAgainError, match="clicks has changed since snapshot"):
        land(deployment, sliding(deployment, 2, 1))
    assert landed_files(deployment) == {}


def test_a_damaged_file_of_late_records_lands_nothing(deployment: Deployment) -> None:
    snapshot = deployment.commit(late=[late(raw(1))])
    path = f"{deployment.catalog.data_prefix(0, snapshot)}/late-0.parquet"
    deployment.store.write(path, deployment.store.read(path).replace(b"ann", b"Ann"))
    with pytest.raises(BrokenObjectError, match=path):
        land(deployment)
    assert landed_files(deployment) == {}


def test_equal_records_of_two_files_are_two(deployment: Deployment) -> None:
    deployment.pipeline = sliding(deployment, 2, 1)
    both = [late(raw(1), window=window, hours=2, file=f"landing/clicks/{window}.jsonl") for window in (0, 1)]
    deployment.commit(late=both)
    assert land(deployment).late_in_some_windows == 2


def test_a_record_whose_id_is_forgotten_does_not_land_as_it_may_have_counted(tmp_path: Path) -> None:
    receipts = hr.json("landing/till", {"id": str, "at": hr.DataType.TIMESTAMP}, max_files=1).event_time(
        "at", bound="0s"
    )
    pipeline = hr.Pipeline(
        "till",
        receipts,
        key=None,
        what={"n": hr.count()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting("10m"),
        deduplicate=hr.Deduplicate("id", "4h"),
        executor="local",
    )
    (tmp_path / "landing/till").mkdir(parents=True)
    for number, (id_, time) in enumerate(
        [("x", "09:00"), ("e", "12:00"), ("y", "09:10"), ("f", "16:00"), ("x", "09:00")]
    ):
        record = {"id": id_, "at": f"2026-03-01T{time}:00Z"}
        (tmp_path / f"landing/till/{number}.json").write_text(json.dumps(record) + "\n")
    handle = hr.open(tmp_path.as_uri())[pipeline]
    handle.run()
    landing = handle.replay_late()
    assert (landing.records, sum(landing.left.values())) == (1, 1)  # of y, which no window counted, and of x
    assert "may have counted already" in next(iter(landing.left))
    late_handle = hr.open(f"{tmp_path.as_uri()}/late")[pipeline]
    late_handle.run(mode="batch")
    batch_handle = hr.open(tmp_path.as_uri())[replace(pipeline, name="whole")]
    batch_handle.run(mode="batch")
    main_counts, late_counts, batch_counts = (
        {row["window_start"]: row["n"] for row in each.read("current", at="main").to_json()}
        for each in (handle, late_handle, batch_handle)
    )
    assert {window: n + late_counts.get(window, 0) for window, n in main_counts.items()} == batch_counts


def test_sliding_windows_with_gaps_have_no_late_records_between_them(deployment: Deployment) -> None:
    deployment.pipeline = sliding(deployment, 1, 2)
    deployment.commit(late=[late(raw(1), window=0, minute=-10)])
    assert land(deployment).records == 1


def test_the_own_prefix_lands_what_was_late_only_the_first_time(deployment: Deployment) -> None:
    deployment.commit(late=[late(raw(1))])
    landing = land(deployment, to="landing/clicks/")
    assert (landing.records, landing.lands_in_source) == (1, True)
    (name,) = landed_files(deployment, "landing/clicks")
    deployment.commit(late=[late(raw(1), file=f"landing/clicks/{name}"), late(raw(2))])
    assert land(deployment, to=f"{deployment.root}/landing/clicks") == hr.types.LandedLate(
        f"{deployment.root}/landing/clicks", files=1, records=1, already_landed=1, late_twice=1, lands_in_source=True
    )


@pytest.mark.parametrize("suffix", [".jsonl", "_clean.jsonl", "beef"])
def test_what_a_rollback_took_back_must_not_lie_beside_the_rest(deployment: Deployment, suffix: str) -> None:
    source = replace(deployment.pipeline.source, suffixes=(suffix,))
    pipeline = change_pipeline(deployment.pipeline, source=source)
    first = deployment.commit(late=[late(raw(1))])
    second = deployment.commit(late=[late(raw(2))])
    land(deployment, pipeline)
    deployment.catalog.rollback("main", first, "why")
    with pytest.raises(LandingAgainError, match=rf"1 files .*late-00000001-{second}{suffix}.* main does not have"):
        land(deployment, pipeline)
    assert land(deployment, pipeline, to="elsewhere").records == 1


def test_csv_lands_with_the_header_of_its_file(deployment: Deployment, tmp_path: Path) -> None:
    pipeline = change_pipeline(deployment.pipeline, source=replace(deployment.pipeline.source, format="csv"))
    names = [f"landing/clicks/{name}" for name in ("a.csv", "b.csv", "c.csv.gz")]
    deployment.store.write(names[0], b"\xef\xbb\xbf\r\nuser,at,amount\r\n...\r\n")
    deployment.store.write(names[1], b"amount,user,at\n...\n")
    deployment.store.write(names[2], gzip.compress(b"user,at,amount\n"))
    snapshot = deployment.commit(
        late=[late(line, file=name) for line, name in zip(("ann,x,1", "2,ann,x", "ann,x,3"), names, strict=True)]
    )
    assert land(deployment, pipeline).records == 3
    assert landed_files(deployment) == {
        f"late-00000000-{snapshot}.csv": b"user,at,amount\nann,x,1\nann,x,3\n",
        f"late-00000000-{snapshot}-1.csv": b"amount,user,at\n2,ann,x\n",
    }
    deployment.store.delete(names[1])
    assert land(deployment, pipeline).already_landed == 1


def test_records_whose_header_is_gone_are_left_and_the_others_land(tmp_path: Path) -> None:
    """They land once their file is back; nothing lands twice, though the files of an epoch go by their headers."""
    deployment = Deployment(tmp_path, file_text=PIPELINE_FILE.replace("hr.json", "hr.csv"))
    pipeline = deployment.pipeline
    names = [f"landing/clicks/{name}.csv" for name in "abc"]
    heads = [b"user,at,amount\n", b"amount,user,at\n", b"user,at,amount\n"]
    for name, head in zip(names, heads, strict=True):
        deployment.store.write(name, head)
    lines = [late(line, file=name) for line, name in zip(("ann,x,1", "2,ann,x", "ann,x,3"), names, strict=True)]
    first = deployment.commit(late=[*lines, lines[1]])
    second = deployment.commit(late=[late("ann,x,4", file=names[0])])
    deployment.store.delete(names[1])

    landing = land(deployment, pipeline)
    gone_text = f"{names[1]}, which has the header of their columns, is gone: put it back"
    assert (landing.files, landing.records, landing.left) == (3, 3, {gone_text: 2})
    files_before = {
        f"late-00000000-{first}-file-0.csv": heads[0] + b"ann,x,1\n",
        f"late-00000000-{first}-file-2.csv": heads[0] + b"ann,x,3\n",
        f"late-00000001-{second}.csv": heads[0] + b"ann,x,4\n",
    }
    assert landed_files(deployment) == files_before
    deployment.store.delete(names[0])
    assert land(deployment, pipeline).left == {gone_text: 2}, "what has landed needs no header any more"
    deployment.store.write(names[0], heads[0])
    result = CliRunner().invoke(app, ["replay-late", deployment.reference, "--root", deployment.root, "--at", "main"])
    assert result.exit_code == 0
    assert f"2 cannot land: {gone_text}" in " ".join(result.stderr.split())

    deployment.store.write(names[1], heads[1])
    assert (landing := land(deployment, pipeline)).records == 2
    assert (landing.already_landed, landing.left) == (3, {})
    assert landed_files(deployment) == {
        **files_before,
        f"late-00000000-{first}-file-1.csv": heads[1] + b"2,ann,x\n2,ann,x\n",
    }
    assert land(deployment, pipeline).records == 0


def test_parquet_lands_as_parquet(deployment: Deployment) -> None:
    pipeline = change_pipeline(deployment.pipeline, source=replace(deployment.pipeline.source, format="parquet"))
    text = {"user": "ann", "at": "2026-03-01T01:10:00.000001Z", "amount": 2**60}
    deployment.commit(late=[late(json.dumps(text)), late(json.dumps({**text, "amount": None}))])
    assert land(deployment, pipeline).records == 2
    (data,) = landed_files(deployment).values()
    rows = pq.read_table(io.BytesIO(data)).to_pylist()
    time = hour(1) + timedelta(minutes=10, microseconds=1)
    assert sorted((row["at"], row["amount"] or 0) for row in rows) == [(time, 0), (time, 2**60)]


@pytest.mark.parametrize(
    ("suffixes", "ending"), [((".gz", ".json"), ".json"), ((".json.gz",), ".json.gz"), ((".zst", ".txt"), ".txt")]
)
def test_names_end_as_the_source_takes_them(deployment: Deployment, suffixes: tuple[str, ...], ending: str) -> None:
    pipeline = change_pipeline(deployment.pipeline, source=replace(deployment.pipeline.source, suffixes=suffixes))
    snapshot = deployment.commit(late=[late(raw(1))])
    land(deployment, pipeline)
    ((name, data),) = landed_files(deployment).items()
    assert name == f"late-00000000-{snapshot}{ending}"
    assert (gzip.decompress(data) if ending.endswith(".gz") else data) == f"{raw(1)}\n".encode()


def test_what_cannot_be_meant_is_refused(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = deployment.pipeline
    far = deployment.pipeline = change_pipeline(pipeline, source=replace(pipeline.source, path="memory://elsewhere"))
    deployment.commit(late=[late(raw(1))])
    with pytest.raises(LandingAgainError, match="need a landing prefix"):
        land(deployment, far)
    assert land(deployment, far, to="landing/late").records == 1
    bz2_pipeline = change_pipeline(pipeline, source=replace(far.source, suffixes=(".bz2",)))
    with pytest.raises(LandingAgainError, match=r"takes only \.bz2"):
        land(deployment, bz2_pipeline, to="landing/packed")


def test_windows_of_ones_own_are_refused_with_what_to_do(deployment: Deployment) -> None:
    from headrace import CustomWindows, ShiftedOutputTime

    @dataclass(frozen=True)
    class Unknown(CustomWindows):
        def assign(self, timestamp: object, record: object) -> tuple[()]:
            return ()

    with pytest.raises(LandingAgainError, match=r"window function of its own.*--mode batch"):
        land(deployment, replace(deployment.pipeline, where=Unknown()))
    with pytest.raises(LandingAgainError, match=r"window function of its own.*--mode batch"):
        land(deployment, replace(deployment.pipeline, where=ShiftedOutputTime(Unknown(), "1h")))


def test_nothing_late_lands_nothing(deployment: Deployment) -> None:
    assert land(deployment).files == 0
    deployment.commit()
    assert land(deployment).files == 0
    assert landed_files(deployment) == {}


def test_a_file_appears_whole_or_not_at_all(deployment: Deployment) -> None:
    """CSV with two headers: the file that says that the epoch is done is created last."""
    pipeline = change_pipeline(deployment.pipeline, source=replace(deployment.pipeline.source, format="csv"))
    deployment.store.write("landing/clicks/a.csv", b"user,at,amount\n")
    deployment.store.write("landing/clicks/b.csv", b"amount,user,at\n")
    deployment.commit(late=[late("1", file=f"landing/clicks/{name}.csv") for name in "ab"])
    created_paths: list[str] = []

    def stop_at_the_second(operation: Operation) -> None:
        if operation.kind == "create" and created_paths:
            raise KeyboardInterrupt
        created_paths.extend([operation.path] * (operation.kind == "create"))

    with disturb_stores(stop_at_the_second), pytest.raises(KeyboardInterrupt):
        land(deployment, pipeline)
    assert len(created_paths) == 1
    assert len(landed_files(deployment)) == 1
    assert land(deployment, pipeline) == hr.types.LandedLate(
        f"{deployment.root}/late/landing/clicks", files=1, records=1, already_landed=1, beside=f"{deployment.root}/late"
    )
    assert len(landed_files(deployment)) == 2


def test_the_command_says_what_landed_and_what_to_do_with_it(deployment: Deployment) -> None:
    deployment.commit(late=[late(raw(1))])

    def run(*arguments: str) -> Any:
        common = ("replay-late", deployment.reference, "--root", deployment.root, "--at", "main")
        return CliRunner().invoke(app, [*common, *arguments])

    result = run()
    assert result.exit_code == 0, result.output
    assert f"--root {deployment.root}/late --mode batch" in result.stderr.replace("\n", "")
    document_again = json.loads(run("--format", "json").stdout)
    assert (document_again["records"], document_again["already_landed"]) == (0, 1)
    own = run("--to", "landing/clicks")
    assert "late again" in own.stderr
    assert run("--to", "landing/clicks", "--at", "mian").exit_code == 10


def test_what_comes_from_several_inputs_is_refused(deployment: Deployment) -> None:
    own = deployment.pipeline
    union_pipeline = replace(own, union=(Input(own.source, own.event_time, "more"),))
    with pytest.raises(LandingAgainError, match="several inputs"):
        land(deployment, union_pipeline)
