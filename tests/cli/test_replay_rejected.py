"""Dead letters land again as they were: once each, in the source's own format; what cannot is counted. No Spark."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace import DataType, Input, Pipeline
from headrace.cli.main import app
from headrace.errors import LandingAgainError
from tests.building import change_pipeline
from tests.cli.deployments import Deployment

Row = dict[str, Any]


def dead_letter(
    raw: str | None, position: int | None = 0, *, file: str | None = "landing/clicks/a.jsonl", **more: Any
) -> Row:
    reason = "not a JSON object"
    return {
        "input": "source",
        "file": file,
        "position": position,
        "reason": reason,
        "raw": raw,
        "raw_bytes": None,
        **more,
    }


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


def land(deployment: Deployment, pipeline: Pipeline | None = None, **options: Any) -> hr.types.LandedRejected:
    handle = hr.open(deployment.root)[pipeline or deployment.pipeline]
    return handle.replay_rejected(**{"at": "main", **options})


def landed_files(deployment: Deployment, folder: str = "rejected/landing/clicks") -> dict[str, bytes]:
    data_by_path = {info.path: deployment.store.read(info.path) for info in deployment.store.list(f"{folder}/")}
    return {path.rpartition("/")[2]: data for path, data in data_by_path.items()}


def of_format(deployment: Deployment, kind: str) -> Pipeline:
    return change_pipeline(deployment.pipeline, source=replace(deployment.pipeline.source, format=kind))


def test_dead_letters_land_once_byte_for_byte_in_the_order_of_their_file(deployment: Deployment) -> None:
    torn_text, bad = '{"user": "Bjørk', b'{"user": "\xff"}'
    letters = [
        dead_letter("{}", 10),
        dead_letter(torn_text, 2),
        dead_letter(bad.decode(errors="replace"), 3, raw_bytes=bad),
        dead_letter("{}", 0, file="landing/clicks/b.jsonl"),
    ]
    first = deployment.commit(rejected=letters)
    deployment.commit()
    landing = land(deployment)
    assert landing == hr.types.LandedRejected(
        {"source": f"{deployment.root}/rejected/landing/clicks"},
        files=1,
        records=4,
        beside=f"{deployment.root}/rejected",
    )
    name = f"rejected-00000000-{first}-source.jsonl"
    assert landed_files(deployment) == {name: b"\n".join([torn_text.encode(), bad, b"{}", b"{}", b""])}
    second = deployment.commit(rejected=[dead_letter("x")])
    assert land(deployment) == replace(landing, records=1, already_landed=1)
    assert landed_files(deployment)[f"rejected-00000002-{second}-source.jsonl"] == b"x\n"
    files_before = landed_files(deployment)
    assert land(deployment) == replace(landing, files=0, records=0, already_landed=2)
    assert landed_files(deployment) == files_before


def test_the_definition_may_have_changed(deployment: Deployment) -> None:
    deployment.commit(rejected=[dead_letter('{"user": 1}')])
    wider = replace(deployment.pipeline.source, schema={**deployment.pipeline.source.schema, "user": DataType.INT})
    assert land(deployment, change_pipeline(deployment.pipeline, source=wider)).records == 1


def test_csv_lands_with_the_header_of_each_file(deployment: Deployment) -> None:
    pipeline = of_format(deployment, "csv")
    files = {name: f"landing/clicks/{name}" for name in ("a.csv", "b.csv", "c.csv.gz")}
    deployment.store.write(files["a.csv"], b"\xef\xbb\xbf\r\nuser,at,amount\r\n...\r\n")
    deployment.store.write(files["b.csv"], b"amount,user,at\n")
    deployment.store.write(files["c.csv.gz"], gzip.compress(b"user,at\n"))
    snapshot = deployment.commit(rejected=[dead_letter("ann,x", n, file=file) for n, file in enumerate(files.values())])
    content = deployment.store.read(files["b.csv"])
    deployment.store.delete(files["b.csv"])
    landing = land(deployment, pipeline)
    gone_text = f"{files['b.csv']}, which has the header of their columns, is gone: put it back"
    assert (landing.records, landing.left) == (2, {gone_text: 1})
    names = [f"rejected-00000000-{snapshot}-source-{number}.csv" for number in range(3)]
    assert landed_files(deployment) == {names[0]: b"user,at,amount\nann,x\n", names[2]: b"user,at\nann,x\n"}
    deployment.store.write(files["b.csv"], content)
    landing_again = land(deployment, pipeline)
    assert (landing_again.records, landing_again.already_landed, landing_again.left) == (1, 2, {})
    assert landed_files(deployment)[names[1]] == b"amount,user,at\nann,x\n"


def test_what_cannot_land_is_counted_with_the_reason(deployment: Deployment) -> None:
    letters = [
        dead_letter("{}"),
        dead_letter(None, None, file="landing/clicks/torn.gz"),
        dead_letter(None, 7),
        dead_letter("{}", None, file=None, input="aggregation 1"),
        dead_letter("{}", input="weather"),
    ]
    deployment.commit(rejected=letters)
    landing = land(deployment)
    assert landing.records == 1
    assert landing.left == {
        "a file that could not be read as a whole: land a sound one under another name": 1,
        "made by a Spark function, so no bytes of a file": 1,
        "of aggregation 1, a pane, which has no file": 1,
        "of weather, an input that the pipeline does not have any more": 1,
    }
    assert replace(land(deployment), already_landed=0, files=1, records=1) == landing, "the second time, too"
    kept_landing = land(deployment, of_format(deployment, "parquet"), to="elsewhere")
    assert (kept_landing.files, kept_landing.left["of a Parquet file, of which no bytes are kept"]) == (0, 3)


def test_what_was_rejected_once_more_does_not_land_once_more(deployment: Deployment) -> None:
    deployment.commit(rejected=[dead_letter("x")])
    assert land(deployment, to="landing/clicks").lands_in_source
    (name,) = landed_files(deployment, "landing/clicks")
    deployment.commit(rejected=[dead_letter("x", file=f"landing/clicks/{name}")])
    landing = land(deployment, to="landing/clicks/")
    assert (landing.files, landing.already_landed, landing.rejected_twice) == (0, 1, 1)


def test_where_the_pipeline_reads_such_files_are_no_input_and_no_obstacle(deployment: Deployment) -> None:
    first = deployment.commit(rejected=[dead_letter("x")])
    second = deployment.commit(rejected=[dead_letter("y")])
    land(deployment, to="landing/clicks/below")
    assert f"again-rejected-00000001-{second}-source.jsonl" in landed_files(deployment, "landing/clicks/below")
    deployment.catalog.tag("before", second)
    deployment.catalog.rollback("main", first, "why")
    assert land(deployment, to="landing/clicks/below").already_landed == 1
    landing = land(deployment, to="landing/clicks", at="before")
    why = "rejected by a snapshot that main does not continue from, or that has expired: no run would read them"
    assert (landing.records, landing.left) == (1, {why: 1})


def test_what_a_rollback_took_back_must_not_lie_beside_the_rest(deployment: Deployment) -> None:
    first = deployment.commit(rejected=[dead_letter("x")])
    second = deployment.commit(rejected=[dead_letter("y")])
    land(deployment)
    deployment.catalog.rollback("main", first, "why")
    with pytest.raises(LandingAgainError, match=rf"1 files .*rejected-00000001-{second}-source.* main does not have"):
        land(deployment)
    assert land(deployment, to="elsewhere").records == 1


def test_each_of_several_inputs_lands_under_a_prefix_of_its_own(deployment: Deployment) -> None:
    own = deployment.pipeline
    more = Input(replace(own.source, path="landing/more"), own.event_time, "more")
    union_pipeline = replace(own, union=(more,))
    deployment.commit(rejected=[dead_letter("x"), dead_letter("y", input="more", file="landing/more/a.jsonl")])
    with pytest.raises(LandingAgainError, match=r"--input.*source, more"):
        land(deployment, union_pipeline, to="elsewhere")
    with pytest.raises(LandingAgainError, match="no input 'moer'"):
        land(deployment, union_pipeline, input="moer")
    assert land(deployment, union_pipeline, input="more", to="elsewhere").records == 1
    assert [*landed_files(deployment, "elsewhere").values()] == [b"y\n"]
    landing = land(deployment, union_pipeline)
    assert landing.targets == {
        n: f"{deployment.root}/rejected/landing/{f}" for n, f in [("source", "clicks"), ("more", "more")]
    }
    assert ([*landed_files(deployment).values()], landing.files) == ([b"x\n"], 2)


def test_files_from_epochs_whose_output_has_expired_are_no_obstacle(deployment: Deployment) -> None:
    for number in range(3):
        snapshot = deployment.commit(rejected=[dead_letter(str(number))])
    assert land(deployment).files == 3
    deployment.catalog.publish(snapshot, None)
    hr.open(deployment.root)["clicks"].expire(keep_last=1)
    head = deployment.head
    assert head is not None
    deployment.head = head.replace(logs={**head.logs, "rejected": deployment.catalog.cut(head.logs["rejected"], 2)})
    deployment.commit(rejected=[dead_letter("3")])
    assert land(deployment).records == 1


def test_how_many_of_what_lands_are_late_is_told_before_they_are_read(deployment: Deployment) -> None:
    """The watermark of main is 50 minutes past midnight, windows are of an hour, and no lateness is allowed beyond a
    day.
    """
    letters = [
        '{"user": "ann", "at": "2026-03-01T00:10:00Z", "amount": 1}',
        '{"user": "bob", "at": "2026-02-27T00:10:00Z", "amount": 1}',
        '{"user": "cid", "at": "2026-02-20T00:10:00Z", "amount": 1}',
        '{"user": "dan',
    ]
    deployment.commit(rejected=[dead_letter(text, number) for number, text in enumerate(letters)])
    assert land(deployment).late == 0, "nobody knows what reads them there"
    own = land(deployment, to="landing/clicks")
    assert (own.records, own.late) == (4, 2)
    assert (land(deployment, to="landing/clicks").records, land(deployment, to="landing/clicks").late) == (0, 0)


def test_the_command_says_that_nothing_is_left_for_the_next_run(deployment: Deployment) -> None:
    deployment.commit(rejected=[dead_letter('{"user": "ann", "at": "2026-02-20T00:10:00Z", "amount": 1}')])
    own = ("--root", deployment.root, "--at", "main", "--to", "landing/clicks")
    for command, words in (
        ("replay-rejected", "all of them are late, since their windows have expired"),
        ("replay-rejected", "Nothing has landed now, so the next run has nothing more to read"),
        ("replay-late", "Nothing has landed now"),
    ):
        result = CliRunner().invoke(app, [command, deployment.reference, *own])
        assert result.exit_code == 0, result.output
        assert words in result.stderr
        assert ("The next run" in result.stderr) is words.startswith("all")


def test_the_command_says_what_landed_and_what_to_do_with_it(deployment: Deployment) -> None:
    deployment.commit(rejected=[dead_letter("x"), dead_letter(None, None)])

    def run(*arguments: str) -> Any:
        common = ("replay-rejected", deployment.reference, "--root", deployment.root, "--at", "main")
        return CliRunner().invoke(app, [*common, *arguments])

    result = run()
    assert result.exit_code == 0, result.output
    assert f"--root {deployment.root}/rejected --mode batch" in result.stderr
    assert "1 cannot land: a file that could not be read as a whole" in result.stderr
    document_again = json.loads(run("--format", "json").stdout)
    assert (document_again["records"], document_again["already_landed"], [*document_again["left"].values()]) == (
        0,
        1,
        [1],
    )
    assert "ignores the copies" in run("--to", "landing/clicks").stderr
    assert run("--input", "weather").exit_code == 10
