"""Every error that Headrace raises on purpose, grouped by what the caller should do about it.

Each class has a stable ``code`` (for machines: result objects, exit codes, Airflow retry rules) and a message (for
people) that says what is wrong, where, and what to do. Codes are only ever added. No message contains a secret.

``TREE`` has them all. Each is a name here, wherever it is defined:

>>> try:
...     hr.open("memory://nobody-has-run-here")
... except hr.errors.MissingRootError as error:  # this one
...     print(error.code)
... except hr.errors.RetryError:  # each that the same call may not meet again
...     print("later")
config.missing_root
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import ClassVar, Final


class HeadraceError(Exception):
    """Base of the tree. ``remedy`` is its branch; ``exit_code`` is what a process that dies of it returns.

    A class says its ``code`` beside its base: ``class RateLimitError(RetryError, code="retry.rate_limit")``; a branch
    also the rest. What a class does not say is as its base has it.
    """

    code: ClassVar[str] = "headrace"
    remedy: ClassVar[str] = "give_up"
    exit_code: ClassVar[int] = 1

    def __init_subclass__(
        cls, *, code: str | None = None, remedy: str | None = None, exit_code: int | None = None, **others: object
    ) -> None:
        super().__init_subclass__(**others)
        cls.code = code or cls.code
        cls.remedy = remedy or cls.remedy
        cls.exit_code = exit_code or cls.exit_code

    def __reduce__(self) -> "tuple[Callable[..., HeadraceError], tuple[object, ...], dict[str, object]]":
        """Pickled as it is, whatever its class is made of: it crosses processes."""
        return _as_it_was, (type(self), *self.args), self.__dict__


def _as_it_was(kind: type[HeadraceError], *arguments: object) -> HeadraceError:
    return kind.__new__(kind, *arguments)


class FixConfigError(HeadraceError, code="config", remedy="fix_config", exit_code=10):
    """The pipeline, the command or the environment is wrong: a person changes it; a retry cannot help."""


class FixDataError(HeadraceError, code="data", remedy="fix_data", exit_code=20):
    """The input or the output is wrong: a person (or the producer) corrects data, then the run is repeated."""


class ValueOverflowError(FixDataError, code="data.overflow"):
    """A result that its type does not hold. It is never wrapped, and no digits are lost (semantics 12.4)."""


OPERANDS = "; cast its operands to float, filter such records out, or correct them"
"""What to do where an expression of a pipeline overflows."""


class IntegerOverflowError(ValueOverflowError, code="data.integer_overflow"):
    """An integer result leaves 64 bits."""


class DateOverflowError(ValueOverflowError, code="data.date_overflow"):
    """A date leaves the years 1 to 9999."""


class DecimalOverflowError(ValueOverflowError, code="data.decimal_overflow"):
    """A decimal leaves 38 digits, of which 9 are after the point."""


class RetryError(HeadraceError, code="retry", remedy="retry", exit_code=30):
    """Something outside failed or was busy; the same call may succeed later."""


class RestoreError(HeadraceError, code="restore", remedy="restore", exit_code=40):
    """What is in memory or in the newest snapshot cannot be used: restore an older whole snapshot and continue."""


class GiveUpError(HeadraceError, code="give_up", remedy="give_up", exit_code=50):
    """This run must stop and must not be retried as it is: another writer owns the pipeline, or an invariant broke."""


class PipelineError(FixConfigError, code="config.pipeline"):
    """A mistake in a pipeline's definition, found when it is built."""


class NotInstalledError(FixConfigError, code="config.not_installed"):
    """A library that only some ways of using Headrace need."""


TREE: Final = """
- headrace                             HeadraceError                headrace.errors
  - config                             FixConfigError               headrace.errors
    - config.access_denied             AccessDeniedError            headrace.distribute.spark.errors
    - config.airflow_defaults          AirflowDefaultsError         headrace_airflow.families.options
    - config.audit_format              AuditFormatError             headrace.audit.store
    - config.avro_schema               AvroSchemaError              headrace.formats.avro_messages
    - config.broken_pipeline_files     BrokenPipelineFilesError     headrace_airflow.dags
    - config.cache_folder              CacheFolderError             headrace.state.datafiles.cache
    - config.changed_code              ChangedCodeError             headrace.runs.restore
    - config.changed_pipeline          ChangedPipelineError         headrace.runs.restore
    - config.clock_ahead               ClockAheadError              headrace.runs.publishing.promotion
    - config.compared_columns          ComparedColumnsError         headrace.read.diff.table_comparison
    - config.compared_table            ComparedTableError           headrace.runs.delivering.against
    - config.conformance_case          CaseFormatError              headrace_lab.conformance.fields
    - config.conformance_unsupported   UnsupportedCaseError         headrace_lab.conformance.words
    - config.connection                MissingConnectionError       headrace.connections
    - config.delivered                 DeliveredError               headrace.runs.publishing.promotion_checks
    - config.deploy_mode               DeployModeError              headrace_airflow.operators
    - config.encryption                EncryptionRefusedError       headrace.ext.stores
    - config.entry_point               BrokenEntryPointError        headrace.entry_points
    - config.environment               DeploymentError              headrace_airflow.roots.root
    - config.expectation_not_evaluated ExpectationNotEvaluatedError headrace.audit.gx_library
    - config.expired                   ExpiredError                 headrace.read.snapshots.epoch_history
    - config.explain                   ExplainError                 headrace.read.keys
    - config.fork_given_up             ForkGivenUpError             headrace.runs.publishing.promotion
    - config.form                      FormError                    headrace_airflow.forms
    - config.former_name               FormerNameError              headrace.read.definition_plan
    - config.graph                     GraphError                   headrace_lab.simulation.graphs
    - config.import_limit              ImportLimitError             headrace.pipeline.loading.registry
    - config.input_ended               InputEndedError              headrace.runs.publishing.promotion
    - config.jvm                       JvmRefusedError              headrace.distribute.spark.errors
    - config.kafka_refused             KafkaRefusedError            headrace.connectors.kafka.errors
    - config.keep                      KeepError                    headrace_snapshots.gc.gc_roots
    - config.landing_again             LandingAgainError            headrace.runs.reprocessing.copies
    - config.large_epoch               LargeEpochError              headrace.distribute.process_limits
    - config.link_loop                 LinkLoopError                headrace_snapshots.store.local
    - config.local_memory              MemoryLimitError             headrace_airflow.processes
    - config.long_history              LongHistoryError             headrace.runs.parking
    - config.missing_root              MissingRootError             headrace.read.roots
    - config.needs_spark               LocalTransformError          headrace.distribute.local.engine
    - config.never_final               NeverFinalError              headrace.read.diff.final_rows
    - config.new_pipeline              NewPipelineError             headrace.cli.commands.pipelines
    - config.no_snapshot               NoSnapshotError              headrace.read.snapshots.snapshot_refs
    - config.not_adoptable             NotAdoptableError            headrace.runs.adopting.plan
    - config.not_approved              NotApprovedError             headrace_airflow.decisions.reasons
    - config.not_installed             NotInstalledError            headrace.errors
    - config.not_registered            NotRegisteredError           headrace.entry_points
    - config.not_rehearsed             NotRehearsedError            headrace_airflow.decisions.reasons
    - config.nothing_to_release        NothingToReleaseError        headrace.runs.publishing.publish
    - config.object_path               ObjectPathError              headrace.ext.stores
    - config.other_definition          OtherDefinitionError         headrace.runs.patching.plan
    - config.out_of_memory             OutOfMemoryError             headrace.distribute.spark.errors
    - config.output_diverged           DivergedError                headrace.distribute.epoch
    - config.partial_branch            PartialBranchError           headrace.runs.publishing.promotion
    - config.patched_since             PatchedSinceError            headrace.runs.publishing.promotion
    - config.pipeline                  PipelineError                headrace.errors
      - config.loop                    LoopError                    headrace.pipeline.loop_step
      - config.pipeline_file           PipelineFileError            headrace.pipeline.loading.registry
      - config.several_outputs         SeveralOutputsError          headrace.pipeline.pipeline
      - config.upstream_cycle          UpstreamCycleError           headrace.pipeline.checks.graph_checks
    - config.place                     PlaceError                   headrace.sources.landing
    - config.pool                      PoolError                    headrace_airflow.preconditions
    - config.pyspark_client            PysparkClientError           headrace.extras
    - config.query                     QueryError                   headrace.read.views.conditions
    - config.range_columns             RangeColumnsError            headrace.connectors.spark.errors
    - config.range_function            RangeFunctionError           headrace.connectors.spark.errors
    - config.range_refused             RangeRefusedError            headrace.connectors.spark.errors
    - config.read_resources            ReadResourcesError           headrace.read.views.database
    - config.reader_roots              ReaderRootsError             headrace.read.lineage.readers
    - config.recover_options           RecoverOptionsError          headrace.runs.recover
    - config.refused                   RefusedError                 headrace_snapshots.errors
    - config.rehearsal_outdated        RehearsalOutdatedError       headrace_airflow.decisions.reasons
    - config.result_format             ResultFormatError            headrace.runs.reporting.results
    - config.roots                     RootsFileError               headrace_airflow.roots.served
    - config.run_options               RunOptionsError              headrace.runs.options
    - config.s3_keys                   S3KeysError                  headrace.ext.stores
    - config.schema_registry           RegistryRefusedError         headrace.connectors.kafka.errors
    - config.simulation                SimulationOptionError        headrace_lab.commands.simulate
    - config.sink_failed               SinkFailedError              headrace.sinks.failures
    - config.sink_refused              SinkRefusedError             headrace.ext.sinks
    - config.sink_taken                SinkTakenError               headrace.sinks.failures
    - config.size                      SizeError                    headrace.sizes
    - config.snapshot_ref              AtError                      headrace.read.snapshots.snapshot_refs
    - config.spark_connection          SparkConnectionError         headrace_airflow.operators
    - config.spark_function            SparkFunctionError           headrace.distribute.spark.errors
    - config.state_definition          StateDefinitionError         headrace.read.explain.waiting
    - config.store_connection          StoreConnectionError         headrace_airflow.roots.connection
    - config.tasks                     TasksSettingError            headrace.distribute.process_limits
    - config.unexplained               UnexplainedError             headrace_airflow.pages.explanation
    - config.unit_test                 UnitTestError                headrace.testing.steps
    - config.unknown_branch            UnknownBranchError           headrace.read.snapshots.snapshot_refs
    - config.unknown_output            UnknownOutputError           headrace_snapshots.format.output_view
    - config.unknown_pipeline          UnknownPipelineError         headrace.pipeline.loading.registry
    - config.unknown_position          UnknownPositionError         headrace.ext.sources
    - config.unknown_reader            UnknownReaderError           headrace.runs.following.reading
    - config.unknown_root              UnknownRootError             headrace_airflow.roots.served
    - config.unknown_sink              UnknownSinkError             headrace.runs.delivering.deliver
    - config.unpatchable               UnpatchableError             headrace.runs.patching.plan
    - config.unserved_root             UnservedRootError            headrace_airflow.pages.lineage
    - config.unwatched_source          UnwatchedSourceError         headrace.read.pending_work
    - config.upstream_panes            UpstreamPanesError           headrace.read.upstream
    - config.whole_pipeline            WholePipelineError           headrace.cli.catalog_names
  - data                               FixDataError                 headrace.errors
    - data.arithmetic                  ArithmeticDataError          headrace.distribute.spark.errors
    - data.audit_failed                AuditFailedError             headrace.audit.store
      - data.limit_exceeded            LimitExceededError           headrace.audit.store
      - data.unusual                   UnusualDataError             headrace.audit.store
    - data.changed_file                ChangedFileError             headrace.sources.file_planning
    - data.dead_letter_budget          DeadLetterBudgetError        headrace.sources.landing
    - data.divided_file                DividedFileError             headrace.formats.errors
    - data.input_gone                  InputGoneError               headrace.runs.restore
    - data.kafka_batch                 UnreadableBatchError         headrace.connectors.kafka.batches
    - data.landed_damaged              LandedDamagedError           headrace.sources.landed.ranges
    - data.large_file                  LargeFileError               headrace.formats.errors
    - data.nothing_to_publish          NothingToPublishError        headrace.runs.publishing.planned_publish
    - data.output_held                 OutputHeldError              headrace.runs.parking
    - data.overflow                    ValueOverflowError           headrace.errors
      - data.date_overflow             DateOverflowError            headrace.errors
      - data.decimal_overflow          DecimalOverflowError         headrace.errors
      - data.integer_overflow          IntegerOverflowError         headrace.errors
    - data.records_lost                RecordsLostError             headrace.connectors.kafka.errors
    - data.split_gone                  SplitGoneError               headrace.ext.sources
    - data.stale                       StaleDataError               headrace.audit.store
    - data.topic_replaced              TopicReplacedError           headrace.connectors.kafka.errors
    - data.undeliverable               UndeliverableError           headrace.ext.sinks
    - data.unreadable_file             UnreadableFileError          headrace.formats.errors
      - data.file_columns              FileColumnsError             headrace.formats.errors
        - data.csv_dialect             DialectError                 headrace.formats.errors
        - data.landed_columns          LandedColumnsError           headrace.connectors.spark.errors
        - data.missing_column          MissingColumnError           headrace.formats.errors
    - data.upstream_unpublished        UpstreamUnpublishedError     headrace.runs.publishing.planned_publish
    - data.vanished_file               VanishedFileError            headrace.sources.file_planning
  - retry                              RetryError                   headrace.errors
    - retry.airflow_api                ApiUnavailableError          headrace_airflow.preconditions
    - retry.audit_missing              AuditMissingError            headrace.runs.publishing.planned_publish
    - retry.branch_behind              BranchBehindError            headrace.runs.publishing.promotion
    - retry.changing_file              ChangingFileError            headrace.sources.file_planning
    - retry.disk_full                  DiskFullError                headrace.distribute.spark.errors
    - retry.incomplete_epoch           IncompleteEpochError         headrace.runs.commits
    - retry.kafka_unreachable          KafkaUnreachableError        headrace.connectors.kafka.errors
    - retry.no_answer                  NoAnswerError                headrace_airflow.pages.forking.client
    - retry.nondeterministic_task      DisagreementError            headrace.distribute.tasks.task_results
    - retry.object_changed             ObjectChangedError           headrace.ext.stores
    - retry.open_windows               OpenWindowsError             headrace.runs.patching.plan
    - retry.orphaned                   OrphanedError                headrace_airflow.processes
    - retry.publish_conflict           PublishConflictError         headrace_snapshots.errors
    - retry.range_failed               RangeFailedError             headrace.connectors.spark.errors
    - retry.root_silent                RootSilentError              headrace_airflow.pages.opened_roots
    - retry.schema_registry            RegistryUnreachableError     headrace.connectors.kafka.errors
    - retry.shuffle_incomplete         TornExchangeError            headrace.distribute.tasks.exchange
    - retry.sink_moved                 SinkMovedError               headrace.ext.sinks
    - retry.sink_unreachable           SinkUnreachableError         headrace.ext.sinks
    - retry.spark_job                  SparkJobError                headrace.distribute.spark.errors
    - retry.spark_start                SparkStartError              headrace.distribute.spark.errors
    - retry.spark_stopped              SparkStoppedError            headrace.distribute.spark.errors
    - retry.storage                    StorageFailedError           headrace.distribute.spark.errors
    - retry.store_unavailable          StoreUnavailableError        headrace.ext.stores
    - retry.unknown_outcome            UnknownOutcomeError          headrace.ext.stores
    - retry.unpublished                UnpublishedError             headrace.runs.patching.plan
  - restore                            RestoreError                 headrace.errors
    - restore.audit_damaged            AuditDamagedError            headrace.audit.store
    - restore.below_published          BelowPublishedError          headrace.runs.restore
    - restore.broken_object            BrokenObjectError            headrace_snapshots.format.codec
    - restore.damaged_log              DamagedLogError              headrace_snapshots.errors
    - restore.damaged_store            DamagedStoreError            headrace.application.maintain
    - restore.history_damaged          HistoryDamagedError          headrace.audit.usual.measures
    - restore.missing_snapshot         MissingSnapshotError         headrace_snapshots.errors
    - restore.newer_format             NewerFormatError             headrace_snapshots.format.codec
    - restore.object_not_found         ObjectNotFoundError          headrace.ext.stores
    - restore.readers_cannot_follow    ReadersCannotFollowError     headrace.runs.following.recovery_cut
    - restore.result_damaged           ResultDamagedError           headrace.runs.reporting.results
    - restore.target_broken            TargetBrokenError            headrace.runs.recovery_target
    - restore.upstream_expired         UpstreamExpiredError         headrace.connectors.published.source
    - restore.upstream_moved           UpstreamMovedError           headrace.runs.following.moves
  - give_up                            GiveUpError                  headrace.errors
    - give_up.engine                   EngineError                  headrace.distribute.spark.errors
    - give_up.fenced                   FencedError                  headrace_snapshots.errors
      - give_up.fenced_after_commit    FencedAfterCommitError       headrace_snapshots.errors
    - give_up.object_exists            ObjectExistsError            headrace.ext.stores
    - give_up.protocol                 ProtocolError                headrace_snapshots.protocol.messages
"""
"""Each error below its base: its code, its class, and the module that defines it, which raises it or tells who does.

``python -m scripts.errors --write`` draws it from the classes. It is what their names are found by here.
"""


def __getattr__(name: str) -> type[HeadraceError]:
    """The class ``name``. Raises NotInstalledError for one that only what is not installed can raise."""
    module = _modules().get(name)
    if module is None:
        raise AttributeError(f"{__name__} has no {name!r}{_meant(name)}")
    try:
        error: type[HeadraceError] = getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        library = (missing.name or module).partition(".")[0]
        raise NotInstalledError(f"{__name__}.{name} is of {module}: {library} is not installed") from missing
    return error


def __dir__() -> list[str]:
    return sorted(_modules())


@cache
def _modules() -> dict[str, str]:
    """The module of each class, by name."""
    return {name: module for _, _, name, module in (line.split() for line in TREE.splitlines() if line)}


def _meant(name: str) -> str:
    from difflib import get_close_matches  # who asks for a name that is there does not wait for it

    near = [] if name.startswith("_") else get_close_matches(name, _modules(), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
