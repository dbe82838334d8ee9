"""The DAG of a pipeline that announces windows: it says which are complete, and which were corrected since.

The asset ``headrace://NAME/windows`` has a partition for each window, so that a DAG which is scheduled by partitions of
assets runs once for a window that is complete, and again when it is corrected.
"""

from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import DAG, BaseOperator, Context
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for
from airflow.sdk.exceptions import AirflowSkipException

from headrace.model.windows import GlobalWindows
from headrace_airflow.families.family import BY_HAND, DagFamily, new_dag_after_publish
from headrace_airflow.families.options import options_of
from headrace_airflow.roots.root import RootedPipeline
from headrace_airflow.roots.store import reaching_store
from headrace_airflow.run_ids import windows_asset

if TYPE_CHECKING:
    from headrace.read.diff.final_rows import AnnouncedWindows

_ANNOUNCED: Final = "announced"
"""Under this key Airflow keeps, beside the asset, what was announced last."""

_ANNOUNCING: Final = "announcing"
"""Under this key what the last run was about to announce: it has, if the newest event says so."""

_UNTIL: Final = "until"
"""Events of ours say up to when windows were complete then."""

_EVENTS: Final = 100
"""The newest event of ours is looked for among so many."""

_AT_FIRST: Final = 1_000
"""Complete windows of which it is told when nothing was told before, at most."""


class AnnounceWindowsOperator(BaseOperator):
    """Gives the asset of windows an event for each window that is complete or was corrected since the last one; skipped
    if there is none. A task that is killed, retried or cleared says again what it may not have said.
    """

    def __init__(self, *, rooted: RootedPipeline, output: str, **kwargs: Any) -> None:
        qualified = "/".join(filter(None, (rooted.qualified, output)))
        self.windows = windows_asset(qualified)
        super().__init__(inlets=[self.windows], outlets=[self.windows], max_active_tis_per_dag=1, **kwargs)
        self.rooted, self.of_output = rooted, output

    def execute(self, context: Context) -> dict[str, Any]:
        """How many windows were announced."""
        from headrace.read.diff.final_rows import window_news
        from headrace.runs.client.deployment import open as open_root

        state = context["asset_state_store"][self.windows]
        announced = self._announced(context)
        where = self.rooted.pipeline.by_output[self.of_output].stages[-1].aggregation.where
        with reaching_store(self.rooted.root):
            reader = open_root(self.rooted.root.uri)[self.rooted.name]
            news = window_news(
                reader[self.of_output] if self.of_output else reader, where, announced, at_first=_AT_FIRST
            )
        if news.is_guess:
            self.log.warning("what was announced last has expired: all complete windows are announced again")
        keys, now = news.keys(), news.announced.to_json()
        if not keys:
            state.set(_ANNOUNCED, now)
            state.set(_ANNOUNCING, None)
            raise AirflowSkipException("no window is complete that was not, and none was corrected")
        state.set(_ANNOUNCED, None if announced is None else announced.to_json())
        state.set(_ANNOUNCING, now)
        event = context["outlet_events"][self.windows]
        event.add_partitions(keys)
        event.extra = {**now, "completed": len(news.completed), "corrected": len(news.corrected)}
        self.log.info("%s windows are complete, and %s were corrected", len(news.completed), len(news.corrected))
        return {"partitions": len(keys), **event.extra}

    def _announced(self, context: Context) -> "AnnouncedWindows | None":
        """What was announced last, as far as anyone knows."""
        state = context["asset_state_store"][self.windows]
        announcing, announced = (
            None if (kept := state.get(key)) is None else _read(kept) for key in (_ANNOUNCING, _ANNOUNCED)
        )
        events = context["inlet_events"][self.windows].ascending(False).limit(_EVENTS)
        # a person may have made events of the asset, too, as in order to have a window done once more
        newest = next((_read(event.extra) for event in events if _UNTIL in (event.extra or {})), None)
        return announcing if announcing is not None and newest == announcing else announced


def _read(kept: Any) -> "AnnouncedWindows":
    from headrace.read.diff.final_rows import AnnouncedWindows

    return AnnouncedWindows.from_json(kept)


def windows_dag(rooted: RootedPipeline) -> DAG | None:
    """Announce windows that are complete, and those that were corrected: after each publish, release, rollback,
    promotion and patch. Each is a partition of an asset, `headrace://NAME/windows`; its key is when the window begins.
    """
    outputs = [
        output
        for output, alone in rooted.pipeline.by_output.items()
        if not isinstance(alone.stages[-1].aggregation.where, GlobalWindows)
    ]
    if not options_of(rooted).announce_windows or not outputs:
        return None
    by_hand = [DagRunType.ASSET_MATERIALIZATION, *BY_HAND]
    with new_dag_after_publish(rooted, "windows", windows_dag.__doc__, outputs, by_hand) as dag:
        for output in outputs:
            AnnounceWindowsOperator(task_id=output or "windows", rooted=rooted, output=output)
    return dag


WINDOWS: Final = DagFamily(windows_dag)
