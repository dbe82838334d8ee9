"""The columns of what readers see. A snapshot records those of the definition that made it, and is read by them.

A definition may continue from snapshots of another one, which had other columns, or the same under other names. Its
files stay as they are; the snapshot records under which names they have its columns.

What looks at columns starts without Arrow: their Arrow types are in ``read.views.arrow_types``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headrace.model.accumulation import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.model.expressions.data_types import (
    ColumnType,
    DataType,
    ListType,
    MapType,
    PairsType,
    StructType,
    ValueType,
)
from headrace.pipeline.identity import Formerly
from headrace.pipeline.pipeline import Pipeline
from headrace_snapshots.format.codec import JsonRecord
from headrace_snapshots.format.manifest import ADOPTED, FORMERLY, OUTPUTS, REJECTED, ROWS, UNNAMED

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.kernel.columns import Names


class View(StrEnum):
    """What can be read of a snapshot.

    ``current``: the latest pane per key and window after retractions; ``panes``: every pane and retraction;
    ``late``: elements that were dropped because their window had expired; ``rejected``: dead letters.
    """

    CURRENT = "current"
    PANES = "panes"
    LATE = "late"
    REJECTED = "rejected"


LOG_OF_VIEW: Mapping[View, str] = {View.PANES: UNNAMED.panes, View.LATE: UNNAMED.late, View.REJECTED: REJECTED}
"""The logs whose files have the rows of views. ``current`` is a table of layers."""

STATE = "state"
"""The name of the view of windows that are still open (``read.open_windows``), which is no result."""

_TIME = DataType.TIMESTAMP
_WINDOW_TYPES = {WINDOW_START: _TIME, WINDOW_END: _TIME}
_PANE_INFO = {
    **_WINDOW_TYPES,
    "pane_time": _TIME,
    "timing": DataType.STRING,
    "pane_index": DataType.INT,
    "nonspeculative_index": DataType.INT,
    "is_first": DataType.BOOL,
    "is_last": DataType.BOOL,
    "is_retraction": DataType.BOOL,
    "epoch": DataType.INT,
    "sequence": DataType.INT,
}
_ORIGIN = {"reason": DataType.STRING, "input": DataType.STRING, "file": DataType.STRING}
_RAW = {"raw": DataType.STRING, "epoch": DataType.INT}
_REJECTED_COLUMNS = {
    "input": DataType.STRING,
    "file": DataType.STRING,
    "position": DataType.INT,
    "reason": DataType.STRING,
    "raw": DataType.STRING,
    "raw_bytes": DataType.BYTES,
    "epoch": DataType.INT,
}


_ROW_INFO = {
    EVENT_TIME: _TIME,
    "timing": DataType.STRING,
    "is_retraction": DataType.BOOL,
    "epoch": DataType.INT,
    "sequence": DataType.INT,
}
_SIGNED_FIELD, _ID_FIELD = "signed", "id"


class Folding(StrEnum):
    """How records become the rows of ``current``. NEWEST: of each key and window the newest record counts, if it is no
    retraction. SUMMED: of equal rows so many stand as came more often than they were withdrawn. NOTHING: each stands.
    """

    NEWEST = "newest"
    SUMMED = "summed"
    NOTHING = "nothing"


class EarlierColumns(JsonRecord, frozen=True):
    """What columns are called in files that epochs up to ``until`` wrote: those of panes, and keys of late rows."""

    until: int
    panes: Mapping[str, str | None]
    late: Mapping[str, str | None]

    @classmethod
    def from_stages(cls, until_epoch: int, stages: Sequence[Formerly], columns: "ViewColumns") -> "EarlierColumns":
        """Columns of the definition that made the snapshot of epoch ``until_epoch``, as ``columns`` are called now."""
        windows = {name: name for name in (WINDOW_START, WINDOW_END)}  # which rows of windows have among their values
        all_names = {**windows, **stages[-1].keys, **stages[-1].values}
        panes = {name: all_names.get(name) for name in (*columns.keys, *columns.values)}
        late = {name: stages[0].keys.get(name, name) for name in columns.late_keys}  # edges of a loop keep their names
        return cls(until_epoch, _renamed_only(panes), _renamed_only(late))

    def compose_with(self, later_columns: "EarlierColumns") -> "EarlierColumns":
        """The same, where names in ``later_columns`` are themselves those of an earlier definition."""
        return EarlierColumns(
            self.until, _compose_names(self.panes, later_columns.panes), _compose_names(self.late, later_columns.late)
        )


def _renamed_only(names: "Names") -> "Names":
    return {name: old_name for name, old_name in names.items() if name != old_name}


def _compose_names(names: "Names", later_names: "Names") -> "Names":
    """What columns are called by ``names``, which go by what ``later_names`` calls them."""
    old_names: dict[str, str | None] = {}
    for name in {*names, *later_names}:
        middle_name = later_names.get(name, name)
        old_names[name] = None if middle_name is None else names.get(middle_name, middle_name)
    return old_names


@dataclass(frozen=True)
class ViewColumns:
    """The columns that a definition gives: keys and values of its panes, keys of its late rows, in order. ``before``:
    what they are called in files of earlier definitions, oldest first. ``output``: whose they are, where outputs have
    names. ``adopted``: the epoch in which main took the output over from a branch last, or in which it came, if not
    with the first; else None. All rows that snapshots name from then on were computed for it. ``formerly``: what the
    output was called, newest name first. ``folding`` is NEWEST of an aggregation. Rows have other ones, and ``id``
    names columns that are unique.
    """

    keys: Mapping[str, DataType]
    values: Mapping[str, ValueType]
    late_keys: Mapping[str, DataType]
    before: tuple[EarlierColumns, ...] = ()
    output: str = ""
    adopted: int | None = None
    formerly: tuple[str, ...] = ()
    folding: Folding = Folding.NEWEST
    id: tuple[str, ...] = ()

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "ViewColumns":
        """Columns of the definition ``pipeline``."""
        last = pipeline.stages[-1]
        of_rows = Folding.SUMMED if last.withdraws else Folding.NOTHING
        folding = of_rows if last.gives_rows else Folding.NEWEST
        keys = {} if last.gives_rows else pipeline.key_types
        return cls(keys, pipeline.value_types, pipeline.record_key_types, folding=folding, id=pipeline.id)

    def to_json(self) -> dict[str, Any]:
        """A JSON value; the inverse of ``from_json``."""
        own: dict[str, Any] = {
            "keys": _to_json(self.keys),
            "values": _to_json(self.values),
            "late_keys": _to_json(self.late_keys),
        }
        own |= {} if self.adopted is None else {ADOPTED: self.adopted}
        own |= {FORMERLY: [*self.formerly]} if self.formerly else {}
        if self.are_rows:
            own[ROWS] = {_SIGNED_FIELD: self.folding is Folding.SUMMED, _ID_FIELD: [*self.id]}
        return {**own, "before": [older.to_json() for older in self.before]} if self.before else own

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ViewColumns":
        """The inverse of ``to_json``."""
        return cls(
            {name: DataType(kind) for name, kind in value["keys"]},
            {name: _type_from_json(kind) for name, kind in value["values"]},
            {name: DataType(kind) for name, kind in value["late_keys"]},
            tuple(map(EarlierColumns.from_json, value.get("before", ()))),
            value.get("output", ""),
            value.get(ADOPTED),
            tuple(value.get(FORMERLY, ())),
            _parse_folding(value.get(ROWS)),
            tuple(value.get(ROWS, {}).get(_ID_FIELD, ())),
        )

    def continue_from(self, earlier: "ViewColumns", until_epoch: int, stages: Sequence[Formerly]) -> "ViewColumns":
        """These, of a definition that continues from a snapshot of epoch ``until_epoch`` with columns ``earlier``."""
        last = EarlierColumns.from_stages(until_epoch, stages, self)
        renames = (last,) if last.panes or last.late else ()
        return self.going_on(
            replace(earlier, before=(*(older.compose_with(last) for older in earlier.before), *renames))
        )

    def going_on(self, earlier: "ViewColumns") -> "ViewColumns":
        """These, with the history of the output as ``earlier`` columns have it."""
        return replace(self, before=earlier.before, adopted=earlier.adopted, formerly=earlier.formerly)

    def names_in_epoch(self, view: View, epoch: int) -> "Names":
        """What columns of ``view`` are called in a file that ``epoch`` wrote."""
        older = next((entry for entry in self.before if epoch <= entry.until), None)
        if older is None or view is View.REJECTED:
            return {}
        return older.late if view is View.LATE else older.panes

    @property
    def are_rows(self) -> bool:
        """Whether they are those of rows, and not of what an aggregation gives."""
        return self.folding is not Folding.NEWEST

    @property
    def extent(self) -> tuple[str, str]:
        """The columns of a row's begin and end in event time: one and the same for a row without a window."""
        return (EVENT_TIME, EVENT_TIME) if self.are_rows else (WINDOW_START, WINDOW_END)

    @property
    def identity(self) -> list[str]:
        """What tells the rows of ``current`` from each other, of rows as far as they can be told."""
        return [*self.values, EVENT_TIME] if self.are_rows else [*self.keys, WINDOW_START, WINDOW_END]

    @property
    def known_by(self) -> list[str]:
        """What a table elsewhere knows rows by: of rows their id, or with what they came."""
        if not self.are_rows:
            return self.identity
        return [*self.id] or ["epoch", "sequence"]

    @property
    def decided_columns(self) -> list[str]:
        """What a release is about: key, window and values. Taking released values back needs no other decision."""
        return [*dict.fromkeys((*self.identity, *self.values))]

    def column_types(self, view: View) -> dict[str, ValueType]:
        match view:
            case View.CURRENT | View.PANES:
                return {**self.keys, **self.values, **(_ROW_INFO if self.are_rows else _PANE_INFO)}
            case View.LATE:
                return {**self.late_keys, "event_time": _TIME, **_WINDOW_TYPES, **_ORIGIN, **_RAW}
            case View.REJECTED:
                return {**({"output": DataType.STRING} if self.output else {}), **_REJECTED_COLUMNS}

    def arrow_schema(self, view: View) -> "pa.Schema":
        """The columns of ``view`` with their Arrow types, timestamps in UTC."""
        from headrace.read.views.arrow_types import schema_of

        return schema_of(self.column_types(view))

    def row_order(self, view: View) -> list[str]:
        """How the rows of ``view`` are ordered."""
        match view:
            case View.CURRENT | View.PANES if self.are_rows:
                return [EVENT_TIME, "epoch", "sequence"] if view is View.CURRENT else ["epoch", "sequence"]
            case View.CURRENT:
                return [WINDOW_START, *self.keys, WINDOW_END]
            case View.PANES:
                return ["epoch", *self.keys, WINDOW_START, WINDOW_END, "sequence"]
            case View.LATE:
                return ["epoch", "event_time", *self.late_keys, WINDOW_START, WINDOW_END]
            case View.REJECTED:
                return ["epoch", "file", "position"]


def _parse_folding(rows: Mapping[str, Any] | None) -> Folding:
    """How rows are folded of which a manifest says this, None: that they are results of an aggregation."""
    if rows is None:
        return Folding.NEWEST
    return Folding.SUMMED if rows[_SIGNED_FIELD] else Folding.NOTHING


def schema_of(columns: Mapping[str, ViewColumns], fingerprints: Mapping[str, str]) -> dict[str, Any]:
    """What a manifest says of the ``columns`` of outputs by their names, and which definition of each gave them; where
    the output has no name only its columns, as the fingerprint is the pipeline's.
    """
    if UNNAMED.output in columns:
        return columns[UNNAMED.output].to_json()
    own = {
        output: {**view_columns.to_json(), "fingerprint": fingerprints[output]}
        for output, view_columns in columns.items()
    }
    return {OUTPUTS: own}


def _to_json(columns: Mapping[str, ValueType]) -> list[list[Any]]:
    """Pairs: objects of a manifest keep no order."""
    return [[name, _type_to_json(kind)] for name, kind in columns.items()]


def _type_to_json(kind: ValueType) -> Any:
    match kind:
        case ListType(item):
            return {"list": _type_to_json(item)}
        case PairsType(left, right):
            return {"pairs": [_type_to_json(left), _type_to_json(right)]}
        case StructType(fields):
            return {"struct": [[name, _type_to_json(own)] for name, own in fields]}
        case MapType(own):
            return {"map": _type_to_json(own)}
    return kind.value


def _type_from_json(value: Any) -> ValueType:
    match value:
        case {"struct": fields}:
            return StructType(tuple((name, _column_type_from_json(own)) for name, own in fields))
        case {"map": own}:
            return MapType(_column_type_from_json(own))
        case {"list": item}:
            return ListType(_column_type_from_json(item))
        case {"pairs": [left, right]}:
            return PairsType(_column_type_from_json(left), _column_type_from_json(right))
    return DataType(value)


def _column_type_from_json(value: Any) -> ColumnType:
    kind = _type_from_json(value)
    assert not isinstance(kind, PairsType)
    return kind
