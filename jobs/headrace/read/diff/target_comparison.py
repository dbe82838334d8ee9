"""What readers see beside what a target holds: any table, or records that are only appended.

Both sides go through DuckDB, which spills what does not fit into memory.

``compare_with_table`` finds which rows only one side has, and which have other values. The table comes as Arrow
batches. Columns of text where readers have another type are read as that type.

``compare_with_records`` compares with what consumers make of the records of a target that only appends. Records of
pipelines that discard or retract are all summed, row by row. In others the newest record of each key and window says
what its row is; so it is of a topic from which a compaction has taken older ones.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import FixConfigError
from headrace.ext.sinks import NUMBER, RECORD_AT, RECORD_MISREAD, RECORD_PLACE, SIGN, StoredRecords
from headrace.model.accumulation import Accumulation
from headrace.model.expressions.data_types import SCALE, DataType, NestedType, PairsType, ValueType, in_words
from headrace.read.diff.appended_rows import StoredChangeRecords, records_between
from headrace.read.diff.changes import changes_between, delivered_columns
from headrace.read.shown_values import JsonFields
from headrace.read.snapshots.progress import LastStage, has_panes
from headrace.read.views.arrow_types import zoneless_rows
from headrace.read.views.columns import ViewColumns
from headrace.read.views.database import no_rows, pack_struct, query_number, sql_columns, sql_identifier, sql_types
from headrace.read.views.row_files import same_identity
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


_KIND: Final = "_headrace_kind"
IS_THERE: Final = "_headrace_there"
"""The column that is true of a row of ours."""
UNREAD: Final = "_headrace_unread"
"""The column of whether a text of a row of theirs is no value of its type."""
THEIR_BATCHES: Final = "headrace_their_batches"
"""What their rows are called, as they are read."""
_UNCAST_TYPES: Final = (DataType.INT, DataType.FLOAT, DataType.DECIMAL, DataType.DATE, DataType.BOOL)
"""Types to which a cast would make equal what is not: 1.5 is not 2, and 13:00 on a day is not that day."""
_FINER: Final = r"[.]\d{9}\d*[1-9]"
"""A number in plain digits with more of them than decimals have, to which a cast would round it."""
_EXPONENT: Final = r"^\s*[+-]?(\d*)[.]?(\d*)[eE]([+-]?\d+)\s*$"
"""A number with an exponent: digits before and after the point, and the exponent."""

_FINER_TIME: Final = r"[.]\d{6}\d*[1-9]"
"""A time with more digits than microseconds have."""

_DECIMAL: Final = sql_types({"": DataType.DECIMAL})[""]


class ComparedColumnsError(FixConfigError, code="config.compared_columns"):
    """Compared columns are missing, have types that do not compare, or leave out what tells rows apart."""


@dataclass(frozen=True)
class ComparedColumns:
    """Which columns are compared: ``renamed`` says what the table calls ours, and those of ``without`` are left out.
    Floats are the same if they differ by no more than ``tolerance``, relative to the greater one.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    tolerance: float = 0.0

    def select_columns(self, columns: Mapping[str, ValueType], keys: Sequence[str]) -> dict[str, ValueType]:
        """Which of ``columns`` are compared. Raises ComparedColumnsError."""
        if unknown := [name for name in (*self.renamed, *self.without) if name not in columns]:
            raise ComparedColumnsError(
                f"there is no column {unknown[0]!r} in what readers see; there are {', '.join(columns)}"
            )
        if left_out := [name for name in keys if name in self.without]:
            raise ComparedColumnsError(
                f"column {left_out[0]!r} is a part of the key, which tells rows apart: it cannot be left out"
            )
        return {name: kind for name, kind in columns.items() if name not in self.without}


@dataclass(frozen=True)
class TableComparison(JsonFields):
    """How many rows each side has, and what became of them; ``first`` has some of those that differ, each with its
    columns as readers see them (``ours``) and as the table has them (``theirs``), or None.

    ``twice``: identities that the table has more than once. ``unreadable``: rows of which a text is no value of the
    type that readers see. ``overdrawn``: rows that changes withdraw more often than they put them in place. Where
    changes were summed ``first`` says how often a row is there (``ours_times``, ``theirs_times``), and which one is
    ``overdrawn``.
    """

    snapshot: str
    ours: int
    theirs: int
    only_ours: int
    only_theirs: int
    different: int
    twice: int
    unreadable: int
    first: Sequence[Mapping[str, Any]]
    overdrawn: int = 0

    @property
    def is_equal(self) -> bool:
        """Whether the table holds what readers see, in the columns that were compared."""
        others = self.only_theirs or self.different or self.twice or self.unreadable or self.overdrawn
        return not (self.only_ours or others)

    def with_more(self, *, duplicates: int, unreadable: int) -> "TableComparison":
        """This, and so many more rows that are there twice or cannot be read."""
        return replace(self, twice=self.twice + duplicates, unreadable=self.unreadable + unreadable)

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {**super().to_json(), "is_equal": self.is_equal}


def compare_with_table(
    catalog: Catalog,
    manifest: Manifest,
    compared_columns: ComparedColumns,
    theirs: "Callable[[Mapping[str, ValueType]], AbstractContextManager[pa.RecordBatchReader]]",
    *,
    limit: int = 20,
) -> TableComparison:
    """Compare ``current`` of ``manifest`` with a table: ``theirs`` gives its rows, in the columns that are asked for,
    each with the type that readers see.

    Memory is that of readers (HEADRACE_READ_MEMORY). Raises ComparedColumnsError, BrokenObjectError,
    ReadResourcesError, and what ``theirs`` raises.
    """
    view = ViewColumns.from_json(manifest.schema)
    _check_tolerance(view, compared_columns.tolerance)
    columns = compared_columns.select_columns(delivered_columns(view), [*view.keys, *view.id])
    identity = [name for name in view.identity if name in columns]
    copies = ""
    if view.are_rows:
        identity = [*view.id] or [*columns]
        if not view.id:  # equal rows are told by their number
            copies, identity = (
                f", row_number() over (partition by {sql_columns(columns)}) as {_COPY}",
                [*columns, _COPY],
            )
    with (
        changes_between(catalog, None, manifest) as changes,
        theirs({compared_columns.renamed.get(name, name): kind for name, kind in columns.items()}) as batches,
    ):
        database = changes.database
        database.execute(
            f"create temp view ours as select {sql_columns(columns)}, true as {IS_THERE}{copies} from {changes.table}"
        )
        read = with_whole_times(batches)
        with comparison_errors(columns, compared_columns, read.schema):
            database.register(THEIR_BATCHES, read)
            theirs_read = read_as(columns, compared_columns, read.schema)
            database.execute(f"create temp table theirs as select *{copies} from ({theirs_read})")
            database.execute(
                f"create temp table compared as {differing_query(columns, identity, compared_columns.tolerance)}"
            )
        database.unregister(THEIR_BATCHES)
        return counted_sides(database, manifest.snapshot_id, identity, limit)


def _check_tolerance(view: ViewColumns, tolerance: float) -> None:
    """Raise ComparedColumnsError where nothing says which two rows may be equal within the ``tolerance``."""
    if tolerance and view.are_rows and not view.id:
        raise ComparedColumnsError(
            "rows without id= are compared as they are, by all their columns. So floats cannot differ within a "
            "tolerance: say id= in the definition and run it, or leave the tolerance out (--tolerance)"
        )


_COPY = "_headrace_copy"


def counted_sides(
    database: "duckdb.DuckDBPyConnection", snapshot: str, identity: Sequence[str], limit: int
) -> TableComparison:
    """What the tables ``ours``, ``theirs`` and ``compared`` of ``database`` say."""
    kinds = dict(database.sql(f"select {_KIND}, count(*) from compared group by all").fetchall())
    rows = database.sql(f"select ours, theirs from compared order by {sql_columns(identity)} limit {limit}")
    duplicates_query = f"select 1 from theirs group by {sql_columns(identity)} having count(*) > 1"
    return TableComparison(
        snapshot=snapshot,
        ours=query_number(database, "select count(*) from ours"),
        theirs=query_number(database, "select count(*) from theirs"),
        only_ours=kinds.get("ours", 0),
        only_theirs=kinds.get("theirs", 0),
        different=kinds.get("different", 0),
        twice=query_number(database, f"select count(*) from ({duplicates_query})"),
        unreadable=query_number(database, f"select count(*) from theirs where {UNREAD}"),
        first=zoneless_rows(rows.to_arrow_table()),
    )


@contextmanager
def comparison_errors(
    columns: Mapping[str, ValueType], compared_columns: ComparedColumns, schema: "pa.Schema"
) -> Iterator[None]:
    """Inside, types that do not compare raise ComparedColumnsError."""
    import duckdb

    try:
        yield
    except (
        duckdb.ConversionException,
        duckdb.BinderException,
        duckdb.OutOfRangeException,
        duckdb.NotImplementedException,
    ) as error:
        types = ", ".join(
            f"{name} {in_words(kind)} ({schema.field(compared_columns.renamed.get(name, name)).type})"
            for name, kind in columns.items()
        )
        raise ComparedColumnsError(
            f"some column of the table has a type that does not compare with ours: {types}. Leave it out (--without), "
            "or compare with a view that casts it"
        ) from error


def with_whole_times(batches: "pa.RecordBatchReader") -> "pa.RecordBatchReader":
    """``batches`` with times of nanoseconds as text: DuckDB would cut them to microseconds."""
    import pyarrow as pa

    finer = {field.name for field in batches.schema if pa.types.is_timestamp(field.type) and field.type.unit == "ns"}
    if not finer:
        return batches
    kinds = [(field.name, pa.string() if field.name in finer else field.type) for field in batches.schema]

    def rows_with_texts() -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            columns = {name: batch.column(name) for name, _ in kinds}
            arrays = [
                values.cast(pa.timestamp("ns")).cast(pa.string()) if name in finer else values  # in UTC
                for name, values in columns.items()
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(kinds))

    return pa.RecordBatchReader.from_batches(pa.schema(kinds), rows_with_texts())


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _check_nested(name: str, kind: NestedType | PairsType, their_type: "pa.DataType") -> None:
    """Raise ComparedColumnsError unless ``their_type`` is ours: a cast would make items equal that are not."""
    from headrace.read.views.arrow_types import schema_of

    if _plain_type(their_type) != _plain_type(schema_of({name: kind}).field(name).type):
        raise ComparedColumnsError(
            f"column {name!r} is a {in_words(kind)}, which is not compared with {their_type}: only with the same, "
            "as Delta, Iceberg and Parquet have them. Leave it out (--without)"
        )


def _plain_type(kind: "pa.DataType") -> "pa.DataType":
    """A type without what says only how it lies in memory, and without names of the items of lists."""
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("item", _plain_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return pa.string() if _is_text(kind) else kind


def read_as(columns: Mapping[str, ValueType], compared_columns: ComparedColumns, schema: "pa.Schema") -> str:
    """SQL: the rows of the table in the types of ours, and whether a text in them is no value of its type."""
    types = sql_types(columns)
    selection, unread = [], []
    for name, kind in columns.items():
        column, their_type = (
            sql_identifier(compared_columns.renamed.get(name, name)),
            schema.field(compared_columns.renamed.get(name, name)).type,
        )
        if isinstance(kind, NestedType | PairsType):
            _check_nested(name, kind, their_type)
            value = f"cast({column} as {types[name]})"
        elif not _is_text(their_type):
            value = column if kind in _UNCAST_TYPES else f"cast({column} as {types[name]})"
        elif kind is DataType.STRING:
            value = f"cast({column} as {types[name]})"
        else:
            value = text_as(f"cast({column} as varchar)", kind)
            unread.append(f"({column} is not null and {value} is null)")
        selection.append(f"{value} as {sql_identifier(name)}")
    return f"select {', '.join(selection)}, {' or '.join(unread) or 'false'} as {UNREAD} from {THEIR_BATCHES}"


def text_as(text: str, kind: ValueType) -> str:
    """SQL: what ``text`` says, in a type that compares with ``kind``; NULL if it says none."""
    match kind:
        case DataType.BYTES:
            return f"case when starts_with({text}, '\\x') then try(unhex(substr({text}, 3))) end"
        case DataType.INT | DataType.DECIMAL:
            return f"case when not {_is_finer(text)} then try_cast({text} as {_DECIMAL}) end"
        case DataType.DATE | DataType.TIMESTAMP:  # a date may have a time of day
            time = "timestamp" if kind is DataType.DATE else sql_types({"": kind})[""]
            return f"case when not regexp_matches({text}, '{_FINER_TIME}') then try_cast({text} as {time}) end"
    return f"try_cast({text} as {sql_types({'': kind})['']})"


def _is_finer(text: str) -> str:
    """SQL: whether a number has more digits after the point than decimals have."""
    whole, part, exponent = (f"regexp_extract({text}, '{_EXPONENT}', {group})" for group in (1, 2, 3))
    digits = f"rtrim({whole} || {part}, '0')"
    scale = f"length({digits}) - length({whole}) - try_cast({exponent} as bigint)"
    return (
        f"case when regexp_matches({text}, '{_EXPONENT}') "
        f"then ltrim({digits}, '0') <> '' and coalesce({scale} > {SCALE}, true) "
        f"else regexp_matches({text}, '{_FINER}') end"
    )


def differing_query(columns: Mapping[str, ValueType], identity: Sequence[str], tolerance: float) -> str:
    """SQL: the rows that are not the same, with what they are on either side."""
    values = [name for name in columns if name not in identity]
    unlike = " or ".join(_differs_sql(sql_identifier(name), columns[name], tolerance) for name in values) or "false"
    kind = (
        f"case when t.{UNREAD} is null then 'ours' when o.{IS_THERE} is null then 'theirs' "
        f"when {unlike} then 'different' end"
    )
    keys = ", ".join(
        f"case when o.{IS_THERE} then o.{name} else t.{name} end as {name}" for name in map(sql_identifier, identity)
    )
    row_structs = {side: pack_struct({name: f"{side}.{sql_identifier(name)}" for name in columns}) for side in "ot"}
    return (
        f"select * from (select {keys}, {kind} as {_KIND}, case when o.{IS_THERE} then {row_structs['o']} end as ours, "
        f"case when t.{UNREAD} is not null then {row_structs['t']} end as theirs "
        f"from ours o full join theirs t on {same_identity('o', 't', identity)}) where {_KIND} is not null"
    )


def _differs_sql(name: str, kind: ValueType, tolerance: float) -> str:
    unlike = f"o.{name} is distinct from t.{name}"
    if kind in (DataType.INT, DataType.DECIMAL):  # is compared with a float as a float, and so may be another one
        return f"({unlike} or o.{name} is distinct from try_cast(t.{name} as {sql_types({'': kind})['']}))"
    if kind is not DataType.FLOAT or not tolerance:
        return f"({unlike})"
    # infinity, and NaN in DuckDB, are within any distance of all numbers
    finite = " and ".join(f"isfinite(cast({side}.{name} as double))" for side in "ot")
    is_near = f"{finite} and abs(o.{name} - t.{name}) <= {tolerance!r} * greatest(abs(o.{name}), abs(t.{name}))"
    return f"({unlike} and not coalesce({is_near}, false))"


_PANES_EXPIRED: Final = "panes that it holds have expired, so what the sum of its changes should be is not known"
_SUMMED_ACCUMULATIONS: Final = (Accumulation.DISCARDING, Accumulation.RETRACTING)


def compare_with_records(
    catalog: Catalog,
    manifest: Manifest,
    theirs: AbstractContextManager[StoredRecords],
    *,
    last_number: int,
    limit: int = 20,
) -> TableComparison | str:
    """Compare what readers see of ``manifest`` with records up to number ``last_number``, which led there; or why that
    cannot be done. ``theirs`` are the records, with the columns that a delivery has.

    Memory is that of readers (HEADRACE_READ_MEMORY). Raises ComparedColumnsError, BrokenObjectError,
    ReadResourcesError, and what ``theirs`` raises.
    """
    stage = LastStage.from_manifest(manifest)
    accumulation = Accumulation.ACCUMULATING if stage is None else stage.accumulation
    if accumulation is Accumulation.DISCARDING and not has_panes(catalog, manifest, -1):
        return _PANES_EXPIRED
    view = ViewColumns.from_json(manifest.schema)
    columns = delivered_columns(view)
    with (
        records_between(catalog, None, manifest, after_number=0, restarts=False) as ours,
        theirs as stored_records,
    ):
        sides = _Comparison(ours, columns, view.identity, limit)
        sides.load_records(stored_records)
        lacking = sides.count_lacking(last_number)
        is_summed = accumulation in _SUMMED_ACCUMULATIONS
        # compaction leaves the newest record of each key, so records do not add up any more
        if lacking and stored_records.is_compacted and accumulation is Accumulation.RETRACTING:
            is_summed = False
        comparison = sides.compare_sums() if is_summed else sides.compare_newest()
        lost_parts = sides.gone_parts(stored_records.begins) if lacking else {}
        return _said_of(lost_parts, lacking) if lost_parts and _is_explained(comparison) else comparison


def _is_explained(comparison: TableComparison) -> bool:
    """Whether all that differs may be so since first records are gone."""
    others = comparison.only_theirs or comparison.different or comparison.twice or comparison.unreadable
    return not comparison.is_equal and not others


def _said_of(lost_parts: Mapping[int, int], lacking: int) -> str:
    places = ", ".join(f"partition {place} begins at offset {offset:,}" for place, offset in lost_parts.items())
    return (
        f"its retention has removed some of the {lacking:,} changes that are there no more and that its rows need "
        f"({places}). headrace deliver --refill sends all rows again"
    )


class _Comparison:
    """Records of one target in a database of its own."""

    def __init__(
        self, ours: StoredChangeRecords, columns: Mapping[str, ValueType], identity: list[str], limit: int
    ) -> None:
        self.database: duckdb.DuckDBPyConnection = ours.database
        self._columns, self._identity, self._limit = columns, identity, limit
        self._snapshot = ours.after or ""
        self._ours = ours.table
        if not ours.order:  # there are no files
            self._create_relation("view", self._ours, f"select 1 as {SIGN}, * from ({no_rows(columns)})")

    def load_records(self, records: StoredRecords) -> None:
        """Read all records. Records before a change of sign 0 in their part are void."""
        read = with_whole_times(records.batches)
        optional = {RECORD_PLACE: DataType.INT, RECORD_AT: DataType.INT, RECORD_MISREAD: DataType.BOOL}
        more = {name: kind for name, kind in optional.items() if name in read.schema.names}
        columns = {NUMBER: DataType.INT, SIGN: DataType.INT, **self._columns, **more}
        with comparison_errors(columns, ComparedColumns(), read.schema):
            self.database.register(THEIR_BATCHES, read)
            self._create_relation(
                "table", "stored", _typed_query(columns, read_as(columns, ComparedColumns(), read.schema))
            )
        self.database.unregister(THEIR_BATCHES)
        last = f"max({RECORD_AT}) as at, max({NUMBER}) as number"
        voids = f"{SIGN} = 0 and not {UNREAD}"
        self._create_relation(
            "table", "voids", f"select {RECORD_PLACE} as place, {last} from stored where {voids} group by all"
        )
        self._create_relation(
            "view",
            "live",
            f"select s.* from stored s left join voids v on s.{RECORD_PLACE} = v.place "
            f"where (v.at is null or s.{RECORD_AT} > v.at) and ({UNREAD} or {SIGN} <> 0)",
        )

    def count_lacking(self, last_number: int) -> int:
        """How many of the numbers up to ``last_number`` are not there, though no change has made them void."""
        begin = query_number(self.database, "select coalesce(max(number), 0) from voids")
        ours = f"not {UNREAD} and {NUMBER} > {begin} and {NUMBER} <= {last_number}"
        number_present = query_number(self.database, f"select count(distinct {NUMBER}) from live where {ours}")
        return last_number - begin - number_present

    def gone_parts(self, begins: Mapping[int, int]) -> dict[int, int]:
        """Choose those of the parts whose first records are gone that lack what is not void."""
        void = {place for (place,) in self.database.sql("select place from voids").fetchall()}
        return {place: offset for place, offset in begins.items() if place not in void}

    def compare_newest(self) -> TableComparison:
        """Rows are what the newest record of each identity says, in the part where that stands."""
        identity = sql_columns(self._identity)
        newest = (
            f"select {RECORD_PLACE}, max({RECORD_AT}) as {RECORD_AT} from live where not {UNREAD} "
            f"group by {RECORD_PLACE}, {identity}"
        )
        self._create_relation(
            "table",
            "theirs",
            f"select {sql_columns(self._columns)}, false as {UNREAD} from live l semi join ({newest}) n "
            f"on l.{RECORD_PLACE} = n.{RECORD_PLACE} and l.{RECORD_AT} = n.{RECORD_AT} where {SIGN} > 0",
        )
        self._create_relation(
            "view", "ours", f"select {sql_columns(self._columns)}, true as {IS_THERE} from {self._ours}"
        )
        self._create_relation("table", "compared", differing_query(self._columns, self._identity, 0.0))
        duplicates_query = f"select {NUMBER} from live where not {UNREAD} group by {NUMBER} having count(*) > 1"
        same_number = query_number(self.database, f"select count(*) from ({duplicates_query})")
        sides = counted_sides(self.database, self._snapshot, self._identity, self._limit)
        return sides.with_more(duplicates=same_number, unreadable=self._count_unreadable())

    def compare_sums(self) -> TableComparison:
        """Rows are there as often as the sum of their signs says."""
        columns = sql_columns(self._columns)
        both_sides = (
            f"select {columns}, {SIGN} as ours, 0 as theirs from {self._ours} union all "
            f"select {columns}, 0 as ours, {SIGN} as theirs from live where not {UNREAD}"
        )
        self._create_relation(
            "table",
            "summed",
            f"select {columns}, sum(ours)::bigint as _headrace_ours, sum(theirs)::bigint as _headrace_theirs "
            f"from ({both_sides}) group by {columns} having sum(ours) <> 0 or sum(theirs) <> 0",
        )
        o, t = "_headrace_ours", "_headrace_theirs"
        sums = ", ".join(
            f"coalesce(sum({number}), 0)::bigint"
            for number in (
                f"greatest({o}, 0)",
                f"greatest({t}, 0)",
                f"greatest({o} - greatest({t}, 0), 0)",
                f"case when {o} <= 0 then greatest({t}, 0) end",
                f"case when {o} > 0 then greatest({t} - {o}, 0) end",
                f"greatest(-{t}, 0)",
            )
        )
        ((ours, theirs, missing, strange, number_twice, overdrawn),) = self.database.sql(
            f"select {sums} from summed"
        ).fetchall()
        row_struct = pack_struct({name: sql_identifier(name) for name in self._columns})
        first = self.database.sql(
            f"select case when {o} > 0 then {row_struct} end as ours, case when {t} > 0 then {row_struct} end as "
            "theirs, "
            f"{o} as ours_times, {t} as theirs_times, case when {t} < 0 then {row_struct} end as overdrawn from summed "
            f"where {o} <> {t} order by {sql_columns(self._identity)}, {o}, {t} limit {self._limit}"
        )
        return TableComparison(
            self._snapshot,
            ours,
            theirs,
            missing,
            strange,
            0,
            number_twice,
            self._count_unreadable(),
            zoneless_rows(first.to_arrow_table()),
            overdrawn,
        )

    def _count_unreadable(self) -> int:
        return query_number(self.database, f"select count(*) from live where {UNREAD}")

    def _create_relation(self, kind: str, name: str, query: str) -> None:
        self.database.execute(f"create temp {kind} {name} as {query}")


def _typed_query(columns: Mapping[str, ValueType], read: str) -> str:
    """SQL: what was ``read``, each value in the type of its column, and whether a record is none of ours."""
    types = sql_types(columns)
    plain = {name: kind for name, kind in columns.items() if not isinstance(kind, NestedType | PairsType)}
    values = [
        f"try_cast({sql_identifier(name)} as {types[name]}) as {sql_identifier(name)}"
        if name in plain
        else sql_identifier(name)
        for name in columns
        if name != RECORD_MISREAD
    ]
    # a cast rounds
    other = [
        f"try_cast({sql_identifier(name)} as {types[name]}) is distinct from {sql_identifier(name)}"
        for name, kind in plain.items()
        if kind in (DataType.INT, DataType.DATE)
    ]
    misread = [UNREAD, *other, f"{NUMBER} is null", f"{SIGN} is null", f"{SIGN} not in (-1, 0, 1)"]
    if RECORD_MISREAD in columns:
        misread.append(RECORD_MISREAD)
    places = [] if RECORD_PLACE in columns else [f"0 as {RECORD_PLACE}", f"try_cast({NUMBER} as bigint) as {RECORD_AT}"]
    return f"select {', '.join([*values, *places])}, coalesce({' or '.join(misread)}, true) as {UNREAD} from ({read})"
