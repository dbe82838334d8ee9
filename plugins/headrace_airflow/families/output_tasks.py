"""Tasks that audit and publish what a run has computed: of each output that has a name, two of its own."""

from typing import Any

from airflow.sdk import BaseOperator, TriggerRule, chain

from headrace_airflow.assets import Published
from headrace_airflow.audit_task import AuditOperator
from headrace_airflow.publishing import PublishOperator
from headrace_airflow.roots.root import RootedPipeline


def audit_and_publish(rooted: RootedPipeline, after: BaseOperator, *, is_made_here: bool = False) -> None:
    """Audit and publish the pipeline once ``after`` has ended well. ``is_made_here``: as ``Published`` has it.

    An audit that fails holds back its own output alone. What readers of all outputs may see moves last, and is told
    unless something has failed: so the run fails if one of its outputs does.
    """
    one_writer: dict[str, Any] = {"pool": rooted.pool}

    def publish(task_id: str, output: str = "", rule: TriggerRule = TriggerRule.ALL_SUCCESS) -> PublishOperator:
        published = Published(rooted.root, rooted.name, output, is_made_here=is_made_here)
        return PublishOperator(task_id=task_id, published=published, trigger_rule=rule, **one_writer)

    if not rooted.pipeline.has_names:
        chain(after, AuditOperator(task_id="audit", rooted=rooted, **one_writer), publish("publish"))
        return
    last = publish("publish", rule=TriggerRule.NONE_FAILED)
    for output in rooted.pipeline.by_output:
        audit = AuditOperator(task_id=f"audit.{output}", rooted=rooted, output=output, **one_writer)
        chain(after, audit, publish(f"publish.{output}", output), last)
