"""Names that are one participle, preposition or adverb and stay, each with the reason.

``scripts.house_names`` counts none of them, and refuses any other. A new bare name is public and comes here, or
it is to say what it holds. An entry whose name is gone is refused, too.
"""

from typing import Final

PUBLIC_NAMES: Final[dict[str, dict[str, str]]] = {
    "What users call, subclass or write as a keyword: hr, headrace.testing, PipelineHandle, listeners": {
        "jobs/headrace/cli/display.py": "Bar.committed Bar.noted Bar.planned Bar.warned",
        "jobs/headrace/connectors/published/definition.py": "published",
        "jobs/headrace/model/arguments.py": "Arguments.number.above Arguments.registered_name.also",
        "jobs/headrace/model/changelog.py": (
            "Versions.deleted debezium_envelope.shared debezium_envelope.within debezium_versions.at "
            "debezium_versions.within upserts.deleted"
        ),
        "jobs/headrace/model/event_time.py": "Punctuated Punctuated.__init__.asserted event_time.at",
        "jobs/headrace/model/expressions/columns.py": (
            "SourceField.inside SourceField.named case.otherwise if_else.otherwise if_else.then"
        ),
        "jobs/headrace/model/expressions/expr.py": "Expr.between Expr.cast.to",
        "jobs/headrace/model/expressions/methods.py": (
            "Aggregations.list_agg.by Aggregations.max_by.by Aggregations.min_by.by Skipped "
            "TimeMethods.local_to_utc.skipped TimeMethods.local_to_utc.twice Twice"
        ),
        "jobs/headrace/model/triggers/data_driven.py": "Then",
        "jobs/headrace/model/triggers/elementary.py": "Always Never",
        "jobs/headrace/pipeline/endpoints.py": "Input.named Source.event_time.at Source.exploded",
        "jobs/headrace/pipeline/joins.py": (
            "as_of.deleted as_of.on lookup.deleted lookup.on next_event.on next_event.within same_window.on "
            "within within.between within.on"
        ),
        "jobs/headrace/pipeline/output.py": (
            "Output.__init__.having Output.__init__.of Output.__init__.renamed Output.__init__.then "
            "Rows.__init__.of Rows.__init__.renamed"
        ),
        "jobs/headrace/pipeline/pipeline.py": (
            "Pipeline.__init__.having Pipeline.__init__.renamed Pipeline.__init__.then"
        ),
        "jobs/headrace/pipeline/quality.py": "Limits.__init__.rejected Limits.given Limits.over usual_volume.within",
        "jobs/headrace/pipeline/rows.py": (
            "GroupRows.__init__.renamed Newest.by Selection.__init__.renamed Take.by Top.by "
            "WaitingRows.__init__.renamed newest.deleted select_columns.renamed top.by"
        ),
        "jobs/headrace/pipeline/stages.py": (
            "Aggregation.__init__.having Aggregation.__init__.renamed new_names.renamed"
        ),
        "jobs/headrace/read/deployment.py": "Deployment.dependents.at Deployment.dependents.of",
        "jobs/headrace/read/pipeline_reader.py": (
            "OutputReader.plan.at PipelineReader.current.at PipelineReader.diff.after "
            "PipelineReader.diff.before PipelineReader.explain.at PipelineReader.files.at "
            "PipelineReader.graph.before PipelineReader.late.at PipelineReader.log.before "
            "PipelineReader.panes.at PipelineReader.plan.at PipelineReader.plans.at PipelineReader.read.at "
            "PipelineReader.rejected PipelineReader.rejected.at PipelineReader.snapshots.at "
            "PipelineReader.state.at"
        ),
        "jobs/headrace/runs/client/handle.py": (
            "PipelineHandle.compare_with.at PipelineHandle.compare_with.without PipelineHandle.replay_late.at "
            "PipelineHandle.replay_late.to PipelineHandle.replay_rejected.at PipelineHandle.replay_rejected.to "
            "PipelineHandle.run.without"
        ),
        "jobs/headrace/runs/client/history.py": (
            "PipelineHistory.rollback.to PipelineStorage.plot.at PipelineStorage.plot.out"
        ),
        "jobs/headrace/runs/reporting/listener.py": (
            "GuardedListener.committed GuardedListener.noted GuardedListener.planned GuardedListener.warned "
            "LineListener.committed LineListener.noted LineListener.planned LineListener.warned "
            "Listener.committed Listener.noted Listener.planned Listener.warned ProgressNotes.committed "
            "ProgressNotes.noted ProgressNotes.planned ProgressNotes.warned Silent.committed Silent.noted "
            "Silent.planned Silent.warned"
        ),
        "jobs/headrace/runs/reporting/results.py": "RunError.of",
        "jobs/headrace/testing/connectors/worlds.py": (
            "SinkDeployment.held SinkDeployment.keyed SinkDeployment.published stored"
        ),
        "jobs/headrace/testing/deployment.py": (
            "TemporaryDeployment.land.of TemporaryDeployment.read.at TemporaryDeployment.run.at"
        ),
        "jobs/headrace/testing/results.py": "Panes.only RowKind.found _ViewRows.found",
        "jobs/headrace/testing/steps.py": "at processing_time.to rows.of together watermark.of watermark.to",
        "jobs/headrace/testing/suite.py": "load.beside",
    },
    "A port of headrace.ext, or what implements one: positional in calls, named in its documentation": {
        "jobs/headrace/audit/arrow_frames.py": "arrow_frame.audited arrow_frame.released",
        "jobs/headrace/connectors/delta/table.py": (
            "DeltaTarget.apply.after DeltaTarget.apply.before DeltaTarget.held DeltaTarget.intervention.held"
        ),
        "jobs/headrace/connectors/files/source.py": (
            "FileEnumerator.after FileEnumerator.taken FileReader.read.required FileReader.read_together.required"
        ),
        "jobs/headrace/connectors/iceberg/table.py": (
            "IcebergTarget.apply.after IcebergTarget.apply.before IcebergTarget.held IcebergTarget.intervention.held"
        ),
        "jobs/headrace/connectors/kafka/source.py": (
            "TopicEnumerator.after TopicReader.connected TopicReader.scanned TopicReader.scanned.fetched "
            "TopicReader.scanned.required"
        ),
        "jobs/headrace/connectors/kafka/target.py": (
            "ChangeTopic.append.after ChangeTopic.append.before ChangeTopic.held ChangeTopic.intervention.held"
        ),
        "jobs/headrace/connectors/postgres/tables.py": (
            "PostgresChanges.append.after PostgresChanges.append.before PostgresTable.apply.after "
            "PostgresTable.apply.before"
        ),
        "jobs/headrace/connectors/postgres/target.py": "PostgresTarget.held PostgresTarget.intervention.held",
        "jobs/headrace/connectors/published/source.py": "StepEnumerator.after StepReader.read.required",
        "jobs/headrace/connectors/spark/sink.py": (
            "SparkTarget.apply.after SparkTarget.apply.before SparkTarget.held _OpenTarget.apply.after "
            "_OpenTarget.apply.before _OpenTarget.held"
        ),
        "jobs/headrace/connectors/spark/source.py": "RangeEnumerator.after WrittenReader.read.required",
        "jobs/headrace/distribute/tasks/engine.py": (
            "TasksEngine.compute.again TasksEngine.compute.recorded TasksEngine.restore.renamed"
        ),
        "jobs/headrace/ext/executors.py": (
            "Engine.compute.again Engine.compute.recorded Engine.restore.renamed Execution.audit_frame.audited "
            "Execution.audit_frame.released"
        ),
        "jobs/headrace/ext/sinks.py": (
            "Changes.met_by.copied Changes.removed Changes.untouched Changes.untouched.copied "
            "OpenChangeLog.append.after OpenChangeLog.append.before OpenSink.apply.after OpenSink.apply.before "
            "OpenTarget.held OpenTarget.intervention.held"
        ),
        "jobs/headrace/ext/sources.py": (
            "FetchingReader.connected FetchingReader.read.required FetchingReader.scanned "
            "FetchingReader.scanned.fetched FetchingReader.scanned.required SourcePosition.passed "
            "SourceReader.read.required SourceReader.read_together.required SplitEnumerator.after "
            "SplitEnumerator.taken"
        ),
        "jobs/headrace/ext/stores.py": "ObjectStore.digested RequestCounts.since shown",
        "jobs/headrace/formats/csv_lines.py": (
            "CsvLines.read.required CsvLines.read_lines.required CsvLines.read_together.required CsvLines.written"
        ),
        "jobs/headrace/formats/fields.py": "typed typed.unparsed",
        "jobs/headrace/formats/file_format.py": (
            "FileFormat.copied FileFormat.read.required FileFormat.read_together.required FileFormat.written "
            "RequiredColumns.check.filled read_file.required"
        ),
        "jobs/headrace/formats/json_lines.py": (
            "JsonLines.read_lines.required JsonLines.read_together.required JsonLines.written read_json.required"
        ),
        "jobs/headrace/formats/lines.py": (
            "TextFormat.copied TextFormat.read.required TextFormat.read_lines.required TextFormat.unpacked "
            "TextLines.where.chosen"
        ),
        "jobs/headrace/formats/parquet.py": (
            "ParquetRows.copied ParquetRows.read.required ParquetRows.read_together.required ParquetRows.written"
        ),
        "jobs/headrace/read/diff/changes.py": (
            "StoredChanges.met_by.copied StoredChanges.removed StoredChanges.untouched StoredChanges.untouched.copied"
        ),
        "jobs/headrace/runs/executors/choice.py": (
            "FittingEngine.restore.renamed FittingExecution.audit_frame.audited FittingExecution.audit_frame.released"
        ),
        "jobs/headrace/runs/executors/on_local.py": (
            "LocalExecution.audit_frame.audited LocalExecution.audit_frame.released"
        ),
        "jobs/headrace/runs/executors/on_spark.py": (
            "SparkExecution.audit_frame.audited SparkExecution.audit_frame.released"
        ),
        "jobs/headrace/sources/landed/files.py": (
            "ClaimedEnumerator.after ClaimedReader.read.required LandedEnumerator.after LandedEnumerator.taken "
            "LandedReader.read.required"
        ),
        "jobs/headrace/testing/connectors/sink_conformance.py": (
            "_SteppedChanges.met_by.copied _SteppedChanges.removed _SteppedChanges.untouched "
            "_SteppedChanges.untouched.copied _SteppedLog.append.after _SteppedLog.append.before "
            "_SteppedSink.apply.after _SteppedSink.apply.before _SteppedTarget.held "
            "_SteppedTarget.intervention.held"
        ),
        "snapshots/headrace_snapshots/store/local.py": "LocalStore.digested MemoryStore.digested",
        "snapshots/headrace_snapshots/store/s3.py": "S3Store.digested",
        "snapshots/headrace_snapshots/testing.py": "FaultyStore.digested",
    },
    "A parameter that the command line, or a page of the Airflow app, takes under its name": {
        "jobs/headrace/cli/commands/history.py": (
            "diff.after diff.against diff.before diff.without explain.at plan.at rollback.to"
        ),
        "jobs/headrace/cli/commands/pipelines.py": "lineage.at lineage.of",
        "jobs/headrace/cli/commands/run.py": (
            "replay_late.at replay_late.to replay_rejected.at replay_rejected.of replay_rejected.to"
        ),
        "jobs/headrace/cli/commands/snapshots.py": "log.before",
        "jobs/headrace/cli/main.py": "files.at plot.at plot.out read.at",
        "plugins/headrace_airflow/pages/app.py": (
            "_add_values.data_docs.after _add_values.data_docs.until _add_values.pane_keys.asked "
            "_add_values.panes.asked _add_values.rows.asked pages_app.diff.after pages_app.diff.before "
            "pages_app.epoch_runs.at pages_app.epochs.at pages_app.graph.at pages_app.history.before "
            "pages_app.lateness.at pages_app.recovery.to pages_app.rollback.to pages_app.snapshot.at"
        ),
    },
    "Reads as the field of this name that is stored, or that others of its kind have": {
        "jobs/headrace/audit/run.py": "AuditSubject.released",
        "jobs/headrace/audit/store.py": "AuditOutcome.exceeded AuditOutcome.failed",
        "jobs/headrace/distribute/tasks/task_results.py": "JoinOutput.changed",
        "jobs/headrace/runs/reporting/results.py": "RunResult.parked",
        "jobs/headrace/runs/reporting/summary.py": "PipelineSummary.exceeded",
        "jobs/headrace/sources/progress.py": "EpochClocks.parked",
    },
    "headrace_snapshots is public: its methods, the events of its protocol, the names of its refs and tables": {
        "snapshots/headrace_snapshots/catalog.py": (
            "Catalog.rollback.replayed Catalog.rollback.to Catalog.step_back.to Catalog.would_roll_back.to"
        ),
        "snapshots/headrace_snapshots/catalog_reader.py": (
            "CatalogReader.ancestry.until CatalogReader.entries.before CatalogReader.history.before "
            "CatalogReader.list_entries.before CatalogReader.readable_since.until "
            "CatalogReader.whole_ancestry.until"
        ),
        "snapshots/headrace_snapshots/expiry.py": "Expired _Expiry.__init__.beside expire.beside",
        "snapshots/headrace_snapshots/format/manifest.py": "ADOPTED REJECTED UNNAMED",
        "snapshots/headrace_snapshots/fsck.py": "Beside fsck.beside",
        "snapshots/headrace_snapshots/log.py": "Entry.from_append.at",
        "snapshots/headrace_snapshots/names.py": "PUBLISHED",
        "snapshots/headrace_snapshots/output_catalog.py": "OutputCatalog.history.before",
        "snapshots/headrace_snapshots/protocol/coordinator.py": "Acknowledged Committed Declined Restored",
        "snapshots/headrace_snapshots/protocol/moves.py": "Fenced Refused Replaced",
    },
    "A keyword of Headrace's operators, which DAGs of users pass": {
        "plugins/headrace_airflow/families/backfill_tasks.py": (
            "BackfillApprovalOperator.__init__.rooted CutOverOperator.__init__.rooted"
        ),
        "plugins/headrace_airflow/families/family.py": (
            "new_dag.about new_dag.rooted new_dag_after_publish.about new_dag_after_publish.rooted options_of.rooted"
        ),
        "plugins/headrace_airflow/families/own.py": (
            "AnnounceWindowsOperator.__init__.rooted DeliverOperator.__init__.rooted"
        ),
        "plugins/headrace_airflow/families/recovery_tasks.py": (
            "ApproveRecoveryOperator.__init__.rooted RehearseRecoveryOperator.__init__.rooted"
        ),
        "plugins/headrace_airflow/operators.py": "HeadraceOperator.__init__.rooted",
        "plugins/headrace_airflow/publishing.py": (
            "AuditOperator.__init__.rooted PreconditionsOperator.__init__.rooted PublishOperator.__init__.published"
        ),
        "plugins/headrace_airflow/roots.py": "RootedPipeline.qualified",
        "plugins/headrace_airflow/run_ids.py": "published_asset.qualified windows_asset.qualified",
    },
    "The word of a value, which says itself at each place where it stands": {
        "jobs/headrace/model/arguments.py": "REQUIRED",
        "jobs/headrace/model/time.py": "NEVER",
        "jobs/headrace/pipeline/deployment.py": "NEVER",
        "jobs/headrace/pipeline/joins.py": "On",
        "jobs/headrace/read/snapshots/snapshot_refs.py": "At",
    },
    "What tests and the lab write of a port, a listener or a protocol": {
        "lab/headrace_lab/conformance/pane_matching.py": "_Panes.found",
        "lab/headrace_lab/sink_plans.py": "_PlannedSink.held",
        "tests/additions/outside/acme_headrace/daily_table.py": "Days.after Rows.read.required",
        "tests/additions/outside/acme_headrace/fixed_width.py": "FixedWidth.read_lines.required FixedWidth.written",
        "tests/additions/outside/acme_headrace/memdir.py": "MemDirStore.digested",
        "tests/additions/outside/acme_headrace/outbox.py": (
            "MessageReader.scanned MessageReader.scanned.required Messages.after"
        ),
        "tests/additions/outside/acme_headrace/size_report.py": "SizeOperator.__init__.rooted",
        "tests/ext/test_moved.py": (
            "test_a_method_of_the_port_that_has_another_name_is_called_under_its_old_one.Old.after"
        ),
        "tests/faults/works.py": "overtaken.Overtaking.committed",
        "tests/process/test_backfill_range.py": (
            "NotingListener.noted test_an_expiry_may_mark_what_was_chosen.Expiring.noted"
        ),
        "tests/process/test_fallback.py": "test_a_broken_state_file_costs_a_replay_and_nothing_else.Readers.committed",
        "tests/process/test_level_progress.py": (
            "test_the_notes_of_a_run_say_where_its_epoch_is_until_it_has_ended.Looking.committed"
        ),
        "tests/process/test_listeners.py": (
            "Counting.committed Failing.committed Failing.noted Failing.planned Failing.warned"
        ),
        "tests/process/test_progress_notes.py": "_Looking.committed",
        "tests/read/test_notebooks.py": "test_an_interrupt_ends_a_run_and_the_next_one_goes_on.Impatient.committed",
        "tests/rows/test_delivered_rows.py": "Log.held Table.held",
        "tests/sinks/spark_targets.py": "Folder.held",
        "tests/sinks/test_changes_by_accumulation.py": "ListedLog.held",
        "tests/snapshots/exploring.py": "_ReplayStore.digested",
        "tests/sources/test_kafka.py": "test_a_run_lands_as_much_at_once_as_an_epoch_takes.CountingListener.committed",
        "tests/sources/test_positions.py": "NumberSplits.after",
    },
    "What tests and the lab write of a command's option or a public call's keyword": {
        "lab/headrace_lab/commands/conformance.py": "conformance.only",
        "lab/headrace_lab/commands/simulate.py": "simulate.without",
        "tests/testing/test_mistakes.py": "calls_of_readers.to calls_of_tests.of",
    },
}
