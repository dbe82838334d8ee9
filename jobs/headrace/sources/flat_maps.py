"""Records that are made of those of a source, each at the place of its record: by a user's own function over batches,
or one for each item of a list.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FixConfigError, HeadraceError
from headrace.formats.file_format import ScannedRecords
from headrace.kernel.columns import Ints, arrow_type, as_numpy, constant, valid
from headrace.model.expressions.data_types import in_words
from headrace.pipeline.endpoints import BatchFunction, Source
from headrace.pipeline.loading.code_digests import named_function
from headrace.sources.changelogs import with_signs

ROW = "_row"
"""The column of a batch that numbers its rows."""

BATCH_ROWS = 2**16
"""How many records a function gets at once at most."""

_SAMPLE = 256
"""How many of the first records of what is read together a function is asked for twice."""

Call = Callable[[pa.RecordBatch], object]
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


def batch_call(function: BatchFunction) -> Call:
    """The function itself. Raises BatchFunctionError."""
    try:
        return named_function(function.in_words, function.name, function.package, BatchFunctionError).function
    except HeadraceError:
        raise
    except Exception as error:  # a module of the user's own may raise anything
        raise BatchFunctionError(
            f"{function.in_words}: its module fails as it is imported: {type(error).__name__}: {error}"
        ) from error


def flat_mapped(source: Source, records: ScannedRecords, call: Call, places_of: PlacesOf) -> FlatMap:
    """What the batch function of ``source``, which is ``call``, makes of those ``records`` that parse; those that do
    not parse stay. Raises BatchFunctionError, and what HeadraceErrors the function raises.
    """
    function = source.transform
    assert isinstance(function, BatchFunction)
    parsed = np.flatnonzero(~valid(records.unparsed))
    given = pa.RecordBatch.from_pydict({name: records.columns[name] for name in source.types})
    if len(parsed) < len(records):
        given = given.take(pa.array(parsed))
    made: list[pa.RecordBatch] = []
    for begin in range(0, len(parsed), BATCH_ROWS):
        numbers = parsed[begin : begin + BATCH_ROWS]
        asked = _Asked(function, call, partial(_places, places_of, numbers))
        result = asked.of(given.slice(begin, BATCH_ROWS), 0)
        if function.deterministic and not begin:
            asked.check_again(given.slice(0, min(_SAMPLE, len(numbers))), result)
        made.append(_numbered(result, numbers[as_numpy(result.column(ROW))]))
    with _held_to_size(records, places_of):
        rows = pa.concat_batches([pa.RecordBatch.from_pylist([], schema=_schema_of(function)), *made])
    flat = with_unparsed(records, as_numpy(rows.column(ROW)), {name: rows.column(name) for name in function.returns})
    return replace(flat, records=with_signs(source, flat.records))


def exploded(name: str, records: ScannedRecords, places_of: PlacesOf) -> FlatMap:
    """One of ``records`` for each item of the list that column ``name`` is; those that do not parse stay. Raises
    FlatMapSizeError.
    """
    lists = records.columns[name]
    rows, items = as_numpy(pc.list_parent_indices(lists)).astype(np.int64), pc.list_flatten(lists)
    if records.unparsed.null_count < len(records):
        parsed = ~valid(records.unparsed)[rows]
        rows, items = rows[parsed], items.filter(pa.array(parsed))
    with _held_to_size(records, places_of):
        columns = {
            other: items if other == name else values.take(pa.array(rows)) for other, values in records.columns.items()
        }
        return with_unparsed(records, rows, columns)


@contextmanager
def _held_to_size(records: ScannedRecords, places_of: PlacesOf) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise FlatMapSizeError(
            f"more than 2 GB in one column are made of the records of {places_of(0, len(records) - 1)} ({error}): land "
            "them in smaller files, or read fewer columns beside what is made of each"
        ) from error


def _places(places_of: PlacesOf, numbers: Ints, first: int, last: int) -> str:
    return places_of(int(numbers[first]), int(numbers[last]))


def _numbered(result: pa.RecordBatch, numbers: Ints) -> pa.RecordBatch:
    return result.set_column(0, ROW, pa.array(numbers))


def with_unparsed(records: ScannedRecords, rows: Ints, columns: Mapping[str, pa.Array]) -> FlatMap:
    """``columns`` made of the ``records`` whose numbers ``rows`` has, ascending, and records that do not parse where
    they are.
    """
    unparsed = np.flatnonzero(valid(records.unparsed))
    if len(unparsed):
        every = np.concatenate([rows, unparsed])
        order = np.argsort(every, kind="stable")
        rows = every[order]
        columns = {
            name: pa.concat_arrays([values, pa.nulls(len(unparsed), values.type)]).take(pa.array(order))
            for name, values in columns.items()
        }
    flat = ScannedRecords(
        columns,
        records.unparsed.take(pa.array(rows)),
        records.position[rows],
        lambda chosen: records.raw(rows[chosen]),
        records.lacks,
        records.has_text,
    )
    return FlatMap(flat, rows)


def _schema_of(function: BatchFunction) -> pa.Schema:
    return pa.schema([(ROW, pa.int64()), *((name, arrow_type(kind)) for name, kind in function.returns.items())])


@dataclass(frozen=True)
class _Asked:
    """A ``function`` that is asked about the records of a batch, which are at ``places``."""

    function: BatchFunction
    call: Call
    places: PlacesOf

    def of(self, given: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """What it makes of the records that begin at number ``first``, in their order."""
        numbers = pa.array(np.arange(given.num_rows))
        wrong = partial(self.error, first, first + given.num_rows - 1)
        try:
            result = self.call(given.append_column(ROW, numbers))
        except (HeadraceError, MemoryError):
            raise
        except Exception as error:
            raise wrong(f"failed: {type(error).__name__}: {error}") from error
        if not isinstance(result, pa.RecordBatch):
            raise wrong(f"gave {type(result).__name__}, and must give a pyarrow.RecordBatch")
        for problem in self._wrong(result, given.num_rows):
            raise wrong(problem)
        schema = _schema_of(self.function)
        return _in_order(pa.RecordBatch.from_arrays([result.column(name) for name in schema.names], schema=schema))

    def check_again(self, given: pa.RecordBatch, result: pa.RecordBatch) -> None:
        """Hold the ``result`` for records that begin with those ``given`` to what it makes of these in two parts."""
        half = (given.num_rows + 1) // 2
        parts = [(begin, given.slice(begin, half)) for begin in (0, half) if begin < given.num_rows]
        answers = [(begin, self.of(part, begin)) for begin, part in parts]
        again = pa.concat_batches([_numbered(rows, as_numpy(rows.column(ROW)) + begin) for begin, rows in answers])
        once = result.filter(pc.less(result.column(ROW), constant(given.num_rows)))
        if once.equals(again):
            return
        first, second = (_rows_by_number(rows, given.num_rows) for rows in (once, again))
        for number, (before, after) in enumerate(zip(first, second, strict=True)):
            if before != after:  # NaN equals itself as text
                raise self.error(
                    number,
                    number,
                    f"gave {before} at first, and {after} when it was asked again with fewer records beside this one. "
                    "It is declared deterministic, so it may keep nothing between two calls, use no clock and nothing "
                    "random, and look at each row alone. Correct it; if it only comes out otherwise each time, declare "
                    "deterministic=False",
                )

    def _wrong(self, result: pa.RecordBatch, rows: int) -> Iterator[str]:
        """What is wrong with a ``result`` for so many ``rows``."""
        names = result.schema.names
        expected = _schema_of(self.function)
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            yield f"gave column {twice[0]} twice"
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
                yield f"{self._declared(field)}, and gave {kind}: cast it"
        try:
            result.validate(full=True)
        except pa.ArrowInvalid as error:
            yield f"gave a batch that is none: {error}"
        numbers = result.column(ROW)
        unknown = pc.or_(pc.less(numbers, constant(0)), pc.greater_equal(numbers, constant(rows)))
        if pc.any(unknown.fill_null(True)).as_py():
            number = numbers.filter(unknown.fill_null(True))[0].as_py()
            yield f"gave {ROW} {'NULL' if number is None else number}, and the batch has {ROW} 0 to {rows - 1}"

    def _declared(self, field: pa.Field) -> str:
        kind = self.function.returns.get(field.name)
        begin = f"must give column {field.name} as" if kind is None else f"declares column {field.name} as"
        return f"{begin} {field.type}" if kind is None else f"{begin} {in_words(kind)}, which is {field.type} in Arrow"

    def error(self, first: int, last: int, problem: str) -> BatchFunctionError:
        """What is wrong with what it made of the records of these numbers."""
        return BatchFunctionError(f"{self.function.in_words} {problem} ({self.places(first, last)})")


def _in_order(result: pa.RecordBatch) -> pa.RecordBatch:
    """``result`` by the rows that it was made of; those of one stay as they came."""
    numbers = as_numpy(result.column(ROW))
    if len(numbers) < 2 or (numbers[1:] >= numbers[:-1]).all():
        return result
    return result.take(pa.array(np.argsort(numbers, kind="stable")))


def _rows_by_number(result: pa.RecordBatch, rows: int) -> list[str]:
    """What was made of each row, as text."""
    made: list[list[object]] = [[] for _ in range(rows)]
    for row in result.to_pylist():
        made[row.pop(ROW)].append(row)
    return [str(given) if given else "no row" for given in made]
