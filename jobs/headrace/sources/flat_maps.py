"""Records that are made of those of a source, each at the place of its record. A user's own function makes them of
batches, or each item of a list makes one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FixConfigError
from headrace.formats.file_format import ScannedRecords
from headrace.kernel.columns import (
    Ints,
    arrow_scalar,
    arrow_type,
    as_numpy,
    checked_values,
    list_numbers,
    take_rows,
    valid_mask,
)
from headrace.model.expressions.data_types import DataType, NestedType, in_words, is_list_of_values, parts_of
from headrace.pipeline.endpoints import BatchFunction, Source
from headrace.pipeline.loading.code_digests import call_on_rows, load_function
from headrace.pipeline.sources import IS_RETRACTION
from headrace.sources.changelogs import with_signs

ROW = "_row"
"""The column of a batch that numbers its rows."""

BATCH_ROWS = 2**16
"""How many records a function gets at once at most."""

_CHECKED_RECORDS = 256
"""How many of the first records of what is read together a function is asked for twice."""

FlatMapCall = Callable[[pa.RecordBatch], object]
PlacesOf = Callable[[int, int], str]
"""Says where records are, of which the first and the last number are given."""


class BatchFunctionError(FixConfigError, code="config.batch_function"):
    """A batch function that is not there, fails, gives what it does not declare, or is not as deterministic as it
    says.
    """


class FlatMapSizeError(FixConfigError, code="config.flat_map_size"):
    """What is made of the records that are read together has more than 2 GB in one column."""


@dataclass(frozen=True)
class FlatMap:
    """What ``made`` gives for records: others, and by ``rows``, which ascend, the number of the record of each."""

    records: ScannedRecords
    rows: Ints


def batch_call(function: BatchFunction) -> FlatMapCall:
    """The function itself. Raises BatchFunctionError."""
    return load_function(function, BatchFunctionError)


def flat_mapped(source: Source, records: ScannedRecords, call: FlatMapCall, places_of: PlacesOf) -> FlatMap:
    """What the batch function of ``source``, which is ``call``, makes of those ``records`` that parse; records that do
    not parse stay. Raises BatchFunctionError, and what HeadraceErrors the function raises.
    """
    function = source.transform
    assert isinstance(function, BatchFunction)
    parsed_rows = np.flatnonzero(~valid_mask(records.unparsed))
    names = [
        name for name in source.types if name not in source.carried or name != IS_RETRACTION
    ]  # as it came, it goes
    batch_given = pa.RecordBatch.from_pydict({name: records.columns[name] for name in names})
    if len(parsed_rows) < len(records):
        batch_given = batch_given.take(pa.array(parsed_rows))
    result = apply_function(
        function, call, batch_given, lambda first, last: places_of(int(parsed_rows[first]), int(parsed_rows[last]))
    )
    rows = parsed_rows[as_numpy(result.column(ROW))]
    columns = {name: result.column(name) for name in function.returns}
    columns |= {name: records.columns[name].take(pa.array(rows)) for name in source.carried}
    flat = with_unparsed(records, rows, columns)
    return replace(flat, records=with_signs(source, flat.records))


def apply_function(
    function: BatchFunction, call: FlatMapCall, rows: pa.RecordBatch, places_of: PlacesOf
) -> pa.RecordBatch:
    """What ``function``, which is ``call``, makes of ``rows``, in their order, ``ROW`` being the number of the row.
    Raises BatchFunctionError, and what HeadraceErrors the function raises.
    """
    results = [pa.RecordBatch.from_pylist([], schema=_schema_of(function))]
    checked_call = _BatchCall(function, call, places_of)
    for begin in range(0, rows.num_rows, BATCH_ROWS):
        batch = rows.slice(begin, BATCH_ROWS)
        result = checked_call.call_batch(batch, begin)
        if function.deterministic and not begin:
            checked_call.check_again(batch.slice(0, _CHECKED_RECORDS), result)
        results.append(_with_row_numbers(result, as_numpy(result.column(ROW)) + begin))
    with _held_to_size(rows.num_rows, places_of):
        return pa.concat_batches(results)


def explode_records(names: Collection[str], records: ScannedRecords, places_of: PlacesOf) -> FlatMap:
    """One of ``records`` for each item of the lists that the columns ``names`` are, which are equally long; records
    that do not parse stay. Raises FlatMapSizeError.
    """
    parsed_rows = np.flatnonzero(~valid_mask(records.unparsed))
    lists = {name: take_rows(records.columns[name], parsed_rows) for name in names}
    rows = parsed_rows[list_numbers(next(iter(lists.values())))]
    with _held_to_size(len(records), places_of):
        columns = {
            name: pc.list_flatten(lists[name]) if name in lists else values.take(pa.array(rows))
            for name, values in records.columns.items()
        }
        return with_unparsed(records, rows, columns)


@contextmanager
def _held_to_size(rows: int, places_of: PlacesOf) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise FlatMapSizeError(
            f"more than 2 GB in one column are made of the records of {places_of(0, rows - 1)} ({error}). Land "
            "them in smaller files, or read fewer columns beside what is made of each"
        ) from error


def _with_row_numbers(result: pa.RecordBatch, numbers: Ints) -> pa.RecordBatch:
    return result.set_column(0, ROW, pa.array(numbers))


def with_unparsed(records: ScannedRecords, rows: Ints, columns: Mapping[str, pa.Array]) -> FlatMap:
    """``columns`` made of the ``records`` whose numbers ``rows`` has, ascending, and records that do not parse where
    they are.
    """
    unparsed_rows = np.flatnonzero(valid_mask(records.unparsed))
    if len(unparsed_rows):
        every = np.concatenate([rows, unparsed_rows])
        order = np.argsort(every, kind="stable")
        rows = every[order]
        columns = {
            name: pa.concat_arrays([values, pa.nulls(len(unparsed_rows), values.type)]).take(pa.array(order))
            for name, values in columns.items()
        }
    flat = ScannedRecords(
        columns,
        records.unparsed.take(pa.array(rows)),
        records.position[rows],
        lambda chosen_rows: records.raw(rows[chosen_rows]),
        records.lacks,
        records.has_text,
    )
    return FlatMap(flat, rows)


def _schema_of(function: BatchFunction) -> pa.Schema:
    return pa.schema([(ROW, pa.int64()), *((name, arrow_type(kind)) for name, kind in function.returns.items())])


@dataclass(frozen=True)
class _BatchCall:
    """A ``function`` that is asked about the records of a batch, which are at ``places``."""

    function: BatchFunction
    call: FlatMapCall
    places: PlacesOf

    def call_batch(self, records: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """What it makes of the records that begin at number ``first``, in their order."""
        numbers = pa.array(np.arange(records.num_rows))
        wrong = partial(self.error, first, first + records.num_rows - 1)
        result = call_on_rows(self.call, records.append_column(ROW, numbers), pa.RecordBatch, wrong)
        for problem in self._result_problems(result, records.num_rows):
            raise wrong(problem)
        schema = _schema_of(self.function)
        columns = {name: result.column(name) for name in schema.names}
        for name, kind in self.function.returns.items():
            if DataType.DATE in parts_of(kind) or (isinstance(kind, NestedType) and not is_list_of_values(kind)):
                columns[name], foreign_row = checked_values(columns[name], kind)
                if foreign_row is not None:
                    raise wrong(f"gave {foreign_row[1]} in column {name}")
        return _in_order(pa.RecordBatch.from_arrays([*columns.values()], schema=schema))

    def check_again(self, records: pa.RecordBatch, result: pa.RecordBatch) -> None:
        """Hold the ``result`` for records that begin with those ``records`` to what it makes of these in two parts."""
        half = (records.num_rows + 1) // 2
        parts = [(begin, records.slice(begin, half)) for begin in (0, half) if begin < records.num_rows]
        answers = [(begin, self.call_batch(part, begin)) for begin, part in parts]
        second_result = pa.concat_batches(
            [_with_row_numbers(rows, as_numpy(rows.column(ROW)) + begin) for begin, rows in answers]
        )
        first_result = result.filter(pc.less(result.column(ROW), arrow_scalar(records.num_rows)))
        if first_result.equals(second_result):
            return
        first, second = (_rows_by_number(rows, records.num_rows) for rows in (first_result, second_result))
        for number, (first_row, second_row) in enumerate(zip(first, second, strict=True)):
            if first_row != second_row:  # NaN equals itself as text
                raise self.error(
                    number,
                    number,
                    f"gave {first_row} at first, and {second_row} when it was asked again with fewer records beside "
                    "this one. It is declared deterministic, so it may keep nothing between two calls, use no clock "
                    "and nothing random, and look at each row alone. Correct it. Declare deterministic=False only if "
                    "its results differ from call to call on purpose",
                )

    def _result_problems(self, result: pa.RecordBatch, rows: int) -> Iterator[str]:
        """What is wrong with a ``result`` for so many ``rows``."""
        names = result.schema.names
        expected = _schema_of(self.function)
        if duplicates := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            yield f"gave column {duplicates[0]} twice"
        if ROW not in names:
            yield (
                f"gave no column {ROW}: each row says by it which one of the batch it was made of, as "
                f'batch.column("{ROW}") does'
            )
        for name in expected.names:
            if name not in names:
                yield f"declares column {name}, and did not give it"
        for name in names:
            if name not in expected.names:
                yield f"gave column {name}, which it does not declare: leave it out, or add it to returns="
        for field in expected:
            if (kind := result.schema.field(field.name).type) != field.type:
                yield f"{self._declared_text(field)}, and gave {kind}: cast it"
        try:
            result.validate(full=True)
        except pa.ArrowInvalid as error:
            yield f"gave a batch that is none: {error}"
        numbers = result.column(ROW)
        unknown = pc.or_(pc.less(numbers, arrow_scalar(0)), pc.greater_equal(numbers, arrow_scalar(rows)))
        if pc.any(unknown.fill_null(True)).as_py():
            number = numbers.filter(unknown.fill_null(True))[0].as_py()
            yield f"gave {ROW} {'NULL' if number is None else number}, and the batch has {ROW} 0 to {rows - 1}"

    def _declared_text(self, field: pa.Field) -> str:
        kind = self.function.returns.get(field.name)
        begin = f"must give column {field.name} as" if kind is None else f"declares column {field.name} as"
        return f"{begin} {field.type}" if kind is None else f"{begin} {in_words(kind)}, which is {field.type} in Arrow"

    def error(self, first: int, last: int, problem: str) -> BatchFunctionError:
        """What is wrong with what it made of the records of these numbers."""
        return BatchFunctionError(f"{self.function.in_words} {problem} ({self.places(first, last)})")


def _in_order(result: pa.RecordBatch) -> pa.RecordBatch:
    """``result`` by the rows that it was made of; rows of one record stay as they came."""
    numbers = as_numpy(result.column(ROW))
    if len(numbers) < 2 or (numbers[1:] >= numbers[:-1]).all():
        return result
    return result.take(pa.array(np.argsort(numbers, kind="stable")))


def _rows_by_number(result: pa.RecordBatch, rows: int) -> list[str]:
    """What was made of each row, as text."""
    rows_by_number: list[list[object]] = [[] for _ in range(rows)]
    for row in result.to_pylist():
        rows_by_number[row.pop(ROW)].append(row)
    return [str(row_values) if row_values else "no row" for row_values in rows_by_number]
