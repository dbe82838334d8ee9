"""The task that moves what readers see: it runs in the worker, without Spark, and announces it by an asset event."""

from typing import Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from headrace.entrypoints.options import MAIN
from headrace_airflow.failures import headrace_errors
from headrace_airflow.operators import Summary, announce, run_id_of
from headrace_airflow.settings import root


class PublishOperator(BaseOperator):
    """Publish what is audited. ``producer`` is the task of the same DAG run that made epochs.

    Skipped, and so without an event, on a branch other than main, and when readers saw everything already and this run
    has made nothing. An attempt after one that died between the catalog entry and the event does send the event.
    """

    def __init__(self, *, pipeline: str, asset: Asset, producer: str, **kwargs: Any) -> None:
        super().__init__(outlets=[asset], **kwargs)
        self.pipeline = pipeline
        self.asset = asset
        self.producer = producer

    def execute(self, context: Context) -> Summary:
        """Publish and announce; raises what is wrong with the audit."""
        from headrace.entrypoints.publish import publish_audited

        if (branch := context["params"].get("branch", MAIN)) != MAIN:
            raise AirflowSkipException(f"branch {branch} is not published: only {MAIN} is")
        made = context["ti"].xcom_pull(task_ids=self.producer)
        if made["snapshot"] is None:
            raise AirflowSkipException("there is no snapshot yet: nothing has landed")
        with headrace_errors():
            result = publish_audited(self.pipeline, root(), run_id=run_id_of(context))
        if not result.epochs and not made["epochs"]:
            raise AirflowSkipException(f"nothing new: readers see snapshot {result.published} as before")
        self.log.info(
            "readers see snapshot %s (epoch %s) now, %s epochs more; watermark %s",
            result.published,
            result.epoch,
            len(result.epochs),
            result.watermark,
        )
        return announce(context, self.asset, result)
