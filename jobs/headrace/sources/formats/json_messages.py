"""Messages that are JSON objects, one each: judged as lines of JSON files are (docs/judging.md)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.expressions.utf8 import are_text
from headrace.kernel.grouping import Ints
from headrace.model.expressions.fields import SourceFields
from headrace.sources.formats.json_lines import JSON
from headrace.sources.formats.lines import TextLines
from headrace.sources.formats.scan import Scanned, nothing
from headrace.sources.required_columns import Required


def read_json(
    messages: pa.Array, position: Ints, fields: SourceFields, required: Required, path: str, *, rules: int = JSON.rules
) -> Scanned:
    """``messages``, a binary column, as records of ``fields``; ``position`` numbers them. An empty one, or NULL, is no
    object. ``rules``: those of files, by which they are judged.
    """
    if not len(messages):
        return nothing(fields)
    octets = messages.fill_null(b"") if messages.null_count else messages
    judge = JSON if rules >= JSON.rules else JSON.by_rules(rules)
    return judge.read_lines(TextLines(octets, position, _is_utf8(octets)), None, fields, required, path)


def _is_utf8(octets: pa.Array) -> NDArray[np.bool_]:
    try:
        pc.cast(octets, pa.string())
    except pa.ArrowInvalid:
        return are_text(octets)
    return np.ones(len(octets), np.bool_)
