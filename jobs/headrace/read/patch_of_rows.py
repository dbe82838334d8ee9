"""What a patch changes where results are rows: a multiset, so that what differs is how often each row is there.

Signs add up: a row is given, or withdrawn, as often as the branch has it more often, or less often, than main. Where
rows can be withdrawn anyway the records of the patch are a further layer of ``current``, as those of any epoch. Where
they cannot, all records of ``current`` stand: files of main are written again there without the rows that the patch
withdraws, and those that it gives are added. So no reader has to add anything up after a patch. The log of panes has
both, with their signs.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.model.accumulation import EVENT_TIME, WINDOW_END, WINDOW_START, Timing
from headrace.read.diff.layered_tables import ChangeKind, LaterPanes, RowChange, RowCounts
from headrace.read.patch_rows import BATCH_ROWS, FATE, PATCHED, PatchComparison, PatchRows, bound_in_granules
from headrace.read.snapshots.progress import RowOrigin
from headrace.read.views.arrow_types import python_rows
from headrace.read.views.columns import Folding, View
from headrace.read.views.database import sql_columns, sql_identifier, sql_literal
from headrace.read.views.row_files import (
    GONE,
    PLACE,
    SIGN,
    NamedFile,
    number_standing,
    parquet_rows_sql,
    same_identity,
    signs_of,
)
from headrace.state.files import put_rows
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.manifest import UNNAMED
from headrace_snapshots.store import ObjectStore

_MORE, _RANK = "_headrace_more", "_headrace_rank"
"""Columns beside those of users, whose names do not begin so."""
_IS_PATCHED = f"{FATE} = '{PATCHED}'"


class RowsPatch(PatchRows):
    """Rows that one side has more often than the other. They say the window of their group, if they have one."""

    @classmethod
    def of_patches(cls, catalog: Catalog, compared: PatchComparison) -> LaterPanes:
        """All of them: no row that stands says that equal ones were withdrawn."""
        since_epoch = min(compared.patches, default=compared.main.epoch) - 1
        later_panes = LaterPanes.from_manifest(catalog, compared.main, since_epoch)
        return LaterPanes(
            later_panes.columns, [(epoch, file) for epoch, file in later_panes.by_epoch if epoch in compared.patches]
        )

    def find_differing(self) -> None:
        """Fill the table ``differing``: a row, how much more often the branch has it, and what becomes of it. What both
        have in the same files cancels out.
        """
        if self.compared.patches:
            patched_ids = f"select distinct {sql_columns(self._unit)} from {self._records_sql(self._of_patches)}"
            self.connection.execute(f"create temp table of_patches as {patched_ids}")
        identity = sql_columns(self._identity)
        main, branch = (signs_of(self._records_sql(files), self._identity, self.columns) for files in self._apart)
        both = f"select {identity}, -{SIGN} as {SIGN} from ({main}) union all select {identity}, {SIGN} from ({branch})"
        sums = (
            f"select {identity}, sum({SIGN})::bigint as {_MORE} from ({both}) group by {identity} having {_MORE} <> 0"
        )
        self.connection.execute(
            f"create temp table differing as select d.*, {self._fate_expression()} as {FATE} from ({sums}) d"
        )

    def row_counts(self) -> RowCounts:
        """Rows of ``current`` before and after the patch, and how many come and go; of which id they have, if any, only
        another row comes, have changed.
        """
        current = self._current_files(self.compared.main)
        count_before = self._count_query(number_standing(self._records_sql(current), self.columns))
        number_added, number_removed = (
            self._count_query(
                f"select coalesce(sum({sign}{_MORE}), 0) from differing where {_IS_PATCHED} and {sign}{_MORE} > 0"
            )
            for sign in ("", "-")
        )
        number_changed = min(
            number_added, number_removed, self._count_query(f"select count(*) from ({self._ids_of_both()})")
        )
        return RowCounts(
            count_before,
            count_before + number_added - number_removed,
            number_added - number_changed,
            number_removed - number_changed,
            number_changed,
        )

    def patch_records(self, epoch: int) -> Iterator[pa.RecordBatch]:
        """The rows that the patch withdraws, and then those that it gives, as ``epoch``."""
        return self._read_records(self._patch_records_query(epoch))

    def layers_after(self, store: ObjectStore, name: str, files: tuple[DataFile, ...], epoch: int) -> tuple[Layer, ...]:
        """The layers of ``current`` after the patch: where nothing is added up, without the rows that are withdrawn."""
        if self.columns.folding is Folding.SUMMED:
            return super().layers_after(store, name, files, epoch)
        self._find_withdrawn()
        kept_layers = [
            self._without_withdrawn(store, name, layer) for layer in self.compared.main.tables.get(UNNAMED.current, ())
        ]
        new_files = put_rows(
            store,
            f"{name}-rows",
            self._read_records(f"select * from ({self._patch_records_query(epoch)}) where not {GONE}"),
        )
        return tuple(layer for layer in (*kept_layers, Layer.from_files(new_files, epoch, epoch)) if layer.rows)

    @property
    def _keys(self) -> list[str]:
        return [*self.compared.stage.keys]

    @property
    def _unit(self) -> list[str]:
        """What a patch leaves or takes as a whole: a group, or all rows of one moment. Of these some may be versions of
        one, as of a record that has other content by now.
        """
        is_grouped = self.compared.stage.made_of is RowOrigin.GROUPS
        return [*self._keys, WINDOW_START, WINDOW_END] if is_grouped else [EVENT_TIME]

    @property
    def _apart(self) -> tuple[list[NamedFile], list[NamedFile]]:
        """The files of ``current`` that only main has, and those that only the branch has."""
        main, branch = (self._current_files(side) for side in (self.compared.main, self.compared.branch))
        return sorted({*main} - {*branch}, key=str), sorted({*branch} - {*main}, key=str)

    @property
    def _of_patches(self) -> list[NamedFile]:
        """The files of panes of patches since the fork."""
        return [
            NamedFile.from_path(self.local[file.path], self.columns.names_in_epoch(View.PANES, epoch), [*self._types])
            for epoch, file in self.patched.by_epoch
        ]

    def _span_bounds(self) -> tuple[str, str]:
        if self.compared.stage.made_of is RowOrigin.GROUPS:
            return super()._span_bounds()
        granule = bound_in_granules(EVENT_TIME, "d")
        return granule, f"({granule} + 1)"

    def _is_of_patch(self) -> str:
        return f"exists (select 1 from of_patches p where {same_identity('p', 'd', self._unit)})"

    def _count_by(self, group_column: str, condition: str) -> dict[str, int]:
        query = f"select {group_column}, sum(abs({_MORE}))::bigint from differing where {condition} group by all"
        return dict(self.connection.sql(query).fetchall())

    def _count_query(self, query: str) -> int:
        ((number,),) = self.connection.sql(query).fetchall()
        return int(number)

    def _ids_of_both(self) -> str:
        """A query of ids of which one row goes and another one comes."""
        if not self.columns.id:
            return "select 1 limit 0"
        ids = sql_columns(self.columns.id)
        sides = (f"select {ids} from differing where {_IS_PATCHED} and {_MORE} {sign} 0" for sign in "<>")
        return " intersect ".join(sides)

    def _row_changes(self, table: str, condition: str, limit: int) -> list[RowChange]:
        order = [EVENT_TIME, *self._identity]
        rows = self.connection.sql(
            f"select {sql_columns(self._identity)}, {_MORE} from (select *, unnest(range(abs({_MORE}))) from {table} "
            f"{condition}) order by {sql_columns(order)}, {_MORE} limit {limit}"
        )
        return [_row_change(row) for row in python_rows(rows.to_arrow_table())]

    def _patch_records_query(self, epoch: int) -> str:
        """A query of the records of the patch: withdrawals first, each with a number of its own."""
        identity = sql_columns(self._identity)
        number = f"row_number() over (order by {_MORE} < 0 desc, {identity}) - 1"
        record = {
            "timing": sql_literal(Timing.LATE),
            GONE: f"{_MORE} < 0",
            "epoch": f"{epoch}::bigint",
            "sequence": f"({number})::bigint",
        }
        own = ", ".join(f"{value} as {sql_identifier(name)}" for name, value in record.items())
        repeated_rows = f"select *, unnest(range(abs({_MORE}))) from differing where {_IS_PATCHED}"
        return f"select {identity}, {own} from ({repeated_rows}) order by sequence"

    def _read_records(self, records: str) -> Iterator[pa.RecordBatch]:
        schema = self.columns.arrow_schema(View.PANES)
        query = f"select {sql_columns(schema.names)} from ({records}) order by sequence"
        for batch in self.connection.sql(query).to_arrow_reader(BATCH_ROWS):
            yield batch.cast(schema)

    def _find_withdrawn(self) -> None:
        """Fill the table ``withdrawn``: of which epoch and sequence the records of main are that go, of equal ones the
        newest.
        """
        identity = ", ".join(f"f.{sql_identifier(name)}" for name in self._identity)
        newest = f"row_number() over (partition by {identity} order by f.epoch desc, f.sequence desc) as {_RANK}"
        rows_gone = f"(select * from differing where {_IS_PATCHED} and {_MORE} < 0)"
        main, _ = self._apart
        ranked_records = (
            f"select f.epoch, f.sequence, {newest}, -d.{_MORE} as {_MORE} from {self._records_sql(main)} f "
            f"join {rows_gone} d on {same_identity('f', 'd', self._identity)}"
        )
        self.connection.execute(
            f"create temp table withdrawn as select epoch, sequence from ({ranked_records}) where {_RANK} <= {_MORE}"
        )

    def _without_withdrawn(self, store: ObjectStore, name: str, layer: Layer) -> Layer:
        """``layer`` without the rows that are withdrawn; itself where it has none of them."""
        files: list[DataFile] = []
        for file in layer.files:
            path = self.local[file.path]
            meets = f"{parquet_rows_sql([path])} f %s join withdrawn w on {same_identity('f', 'w', PLACE)}"
            if not self._count_query(f"select count(*) from {meets % 'semi'}"):
                files.append(file)
                continue
            file_schema = pa.schema([(field.name, field.type) for field in pq.read_schema(path)])
            rest = self.connection.sql(f"select f.* from {meets % 'anti'}").to_arrow_reader(BATCH_ROWS)
            stem = f"{name}-{layer.first_epoch}-{len(files)}"
            files += put_rows(store, stem, (batch.cast(file_schema) for batch in rest))
        is_whole = tuple(files) == layer.files
        return layer if is_whole else Layer.from_files(tuple(files), layer.first_epoch, layer.last_epoch, layer.expires)


def _row_change(row: dict[str, object]) -> RowChange:
    comes = int(str(row.pop(_MORE))) > 0
    kind = ChangeKind.ADDED if comes else ChangeKind.REMOVED
    return RowChange(kind, row, None if comes else {}, {} if comes else None)
