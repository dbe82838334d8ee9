"""Records as changes: each a row of the source's schema, and its ``_sign``: 1 if it is added, -1 if it is withdrawn
(semantics 14). With any other sign, NULL too, it is a dead letter.
"""

from dataclasses import replace

import numpy as np

from headrace.formats.scan import ScannedRecords
from headrace.kernel.expressions.overflowing import column_apart
from headrace.kernel.grouping import Ints
from headrace.model.changelog import DebeziumEnvelope, RecordSign
from headrace.pipeline.source import Source
from headrace.program import columns as c
from headrace.sources.changelogs.envelope import rows_of_envelopes


def as_changes(source: Source, records: ScannedRecords) -> ScannedRecords:
    """``records`` of ``source``, read with the columns of ``source.as_read``, as changes. Without a changelog, and
    where a user's own Spark code comes first, they stay what they are.
    """
    match source.changelog:
        case RecordSign() if source.transform is None:
            return with_signs(source, records)
        case DebeziumEnvelope() as envelope:
            return rows_of_envelopes(envelope, source, records)
    return records


def with_signs(source: Source, records: ScannedRecords) -> ScannedRecords:
    """``records``, of which each is one change, with their signs."""
    changelog = source.changelog
    if not isinstance(changelog, RecordSign):
        return records
    read = source.as_read.columns
    signs, _ = column_apart(changelog.sign_of(source.schema), records.columns, read, len(records))
    columns = {name: records.columns[name] for name in source.columns}
    return replace(records, columns={**columns, c.SIGN: signs})


def rows_at(records: ScannedRecords, positions: Ints, signs: Ints | None) -> Ints:
    """Which of ``records`` have these ``positions``. An update is two changes of one position, first the row before it:
    ``signs`` say which of them is meant.
    """
    rows: Ints = np.searchsorted(records.position, positions)
    if signs is None or c.SIGN not in records.columns:
        return rows
    after = np.minimum(rows + 1, len(records) - 1)
    own = records.columns[c.SIGN].fill_null(0).to_numpy()
    return np.where((records.position[after] == positions) & (own[rows] != signs), after, rows)
