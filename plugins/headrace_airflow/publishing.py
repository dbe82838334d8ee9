"""Tasks that change what readers see: they run in the worker, without Spark, and announce it by an asset event."""

from typing import Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from headrace.entrypoints.results import RunResult
from headrace_airflow.failures import headrace_errors
from headrace_airflow.operators import Summary, backfill_branch, skip_unless_main, summary
from headrace_airflow.settings import root


class PublishOperator(BaseOperator):
    """Publish what is audited. ``producer`` is the task of the same DAG run that made epochs.

    Sends no event (the task is skipped) when readers saw everything already and this run has made nothing: an attempt
    after one that died between the catalog entry and the event still sends it.
    """

    def __init__(self, *, pipeline: str, asset: Asset, producer: str, **kwargs: Any) -> None:
        super().__init__(outlets=[asset], **kwargs)
        self.pipeline = pipeline
        self.asset = asset
        self.producer = producer

    def execute(self, context: Context) -> Summary:
        """Publish and announce; raises what is wrong with the audit."""
        from headrace.entrypoints.publish import publish_audited

        skip_unless_main(context)
        with headrace_errors():
            result = publish_audited(self.pipeline, root())
        made = context["ti"].xcom_pull(task_ids=self.producer)
        if not result.epochs and not made["epochs"]:
            raise AirflowSkipException(f"nothing new: readers see snapshot {result.published} as before")
        return _announce(context, self.asset, result)


class CutOverOperator(BaseOperator):
    """Make the branch of a backfill ``main`` and ``published`` in one catalog entry."""

    def __init__(self, *, pipeline: str, asset: Asset, **kwargs: Any) -> None:
        super().__init__(outlets=[asset], **kwargs)
        self.pipeline = pipeline
        self.asset = asset

    def execute(self, context: Context) -> Summary:
        """Cut over and announce; raises when the branch is not audited or main has more than it."""
        from headrace.entrypoints.backfill import cut_over

        with headrace_errors():
            result = cut_over(self.pipeline, root(), backfill_branch(context))
        return _announce(context, self.asset, result)


def _announce(context: Context, asset: Asset, result: RunResult) -> Summary:
    """Give the event of ``asset`` its extra: {epoch, snapshot, rows, watermark} of what readers see now."""
    small = summary(result)
    context["outlet_events"][asset].extra = {key: small[key] for key in ("epoch", "snapshot", "rows", "watermark")}
    return small
