"""Physical plans of the engine: no Python per row, no shuffle of state, and as many keys after a union as before."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.engine import step as steps
from headrace.engine.delta import aggregate, assigned
from headrace.engine.epochs import EpochEngine
from headrace.engine.session import interpreting
from headrace.engine.source_reading import open_batch, read_batches
from headrace.engine.state import merge, union
from headrace.engine.types import DataFrame, SparkSession
from headrace.model.time import Instant, instant
from headrace.pipeline import AfterCount, AfterWatermark, Pipeline, col, custom_of, retracting
from headrace.pipeline.inputs import OWN
from headrace.program.firing import Clocks
from headrace.sources.landing import Landing
from headrace.sources.planning import InputFile
from headrace_snapshots.store import open_store
from tests.own_combiners import Span
from tests.process.clicks import CLICKS, FILES, SESSIONS, START, USERS, land

pytestmark = pytest.mark.spark


def plan_of(rows: DataFrame) -> str:
    execution = rows._jdf.queryExecution()  # type: ignore[operator]
    return str(execution.executedPlan().toString())


def engine_before(pipeline: Pipeline, spark: SparkSession, root: Path, left: int) -> EpochEngine:
    """An engine with the state of all files but the last ``left``."""
    land(root)
    store = open_store(root.as_uri())
    landing = Landing(pipeline, store)
    made = EpochEngine(spark, pipeline, store, landing)
    for file in landing.new_files({})[OWN][:-left]:
        made.compute({OWN: [file]}, Instant(0))
    return made


@pytest.fixture(scope="module", params=[CLICKS, SESSIONS], ids=lambda p: p.name)
def engine(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> EpochEngine:
    """With the state of all files but the last; tests only look at it."""
    return engine_before(request.param, spark, tmp_path_factory.mktemp("plans"), left=1)


def delta_of(engine: EpochEngine) -> DataFrame:
    files = engine.landing.new_files({})[OWN][-1:]
    batch = open_batch(engine.spark, engine.pipeline, engine.pipeline.inputs[0], files, engine.store.uri)
    judged = read_batches(engine.spark, engine.pipeline, engine.plan, [batch])
    partitions = engine.operators[0].partitions
    return aggregate(engine.plan, assigned(engine.plan, judged, engine.progress.watermark), partitions)


def step_of(engine: EpochEngine) -> steps.Step:
    delta = delta_of(engine).localCheckpoint(eager=True)
    later = Instant(instant(START) + 10 * 3_600_000_000)
    clocks = Clocks(engine.progress.watermark, later, Instant(0), Instant(0))
    step = steps.StepProgram(engine.plan).build(FILES, engine.operators[0].layers, delta, clocks)
    assert step is not None
    return step


def test_reading_and_aggregation_have_one_shuffle_and_no_python(engine: EpochEngine) -> None:
    plan = plan_of(delta_of(engine))
    assert plan.count("Exchange") == 1
    assert "Python" not in plan
    assert "Arrow" not in plan


def test_state_is_never_shuffled_and_firing_has_no_python(engine: EpochEngine) -> None:
    step = step_of(engine)
    for rows in (step.rows, step.state(), step.panes()):
        plan = plan_of(rows)
        assert "Exchange" not in plan
        assert "Python" not in plan
        assert "Join" in plan, "the touched windows are looked up"


def test_own_combiners_keep_the_program_out_of_the_aggregation(spark: SparkSession, tmp_path: Path) -> None:
    """Else Spark writes each value of it wherever it is read: a plan of a million characters."""
    trigger = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
    how = retracting(allowed_lateness=timedelta(hours=1))
    sessions = replace(SESSIONS, when=trigger, how=how, what={"span": custom_of(Span(), col("price"))})
    session = interpreting(spark)
    session.conf.set("spark.sql.debug.maxToStringFields", "1000")
    execution = step_of(engine_before(sessions, session, tmp_path, left=1)).rows._jdf.queryExecution()  # type: ignore[operator]
    longest = max(str(execution.optimizedPlan().toString()).splitlines(), key=len)
    assert len(longest) < 20_000, longest[:200]


def test_unions_keep_every_key(engine: EpochEngine) -> None:
    """Guards against the wrong results of groupings over unions of bucketed rows (SPARK-59141)."""
    rows = union([layer.rows for layer in engine.operators[0].layers])
    merged = merge(engine.plan, engine.operators[0].layers, drop_deleted=False)
    identity = engine.plan.identity
    assert merged.count() == rows.select(*identity).distinct().count()
    assert rows.select("user").distinct().count() == USERS
    step = step_of(engine)
    changed = step.rows.localCheckpoint(eager=True)
    assert changed.count() == changed.select(*identity).distinct().count()
    assert changed.select("user").distinct().count() == USERS


def test_an_epoch_without_rows_starts_no_job(spark: SparkSession, tmp_path: Path) -> None:
    engine = engine_before(CLICKS, spark, tmp_path, left=FILES - 1)
    info = engine.store.write(f"{engine.pipeline.source.path}/zz-nothing.json", b"")
    context = engine.spark.sparkContext
    context.setJobGroup("nothing", "an epoch of an empty file")
    computed = engine.compute({OWN: [InputFile(info.path, info.size, info.etag)]}, Instant(0))
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert context.statusTracker().getJobIdsForGroup("nothing") == []
    assert (computed.counts["input_files"], computed.counts["records"]) == (1, 0)
    assert computed.progress.watermark == engine.progress.watermark
