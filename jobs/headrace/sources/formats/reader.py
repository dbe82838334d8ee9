"""A landed file as records of its source's schema, whatever its format."""

from headrace.pipeline.sources import FileSource
from headrace.sources.formats.scan import Scanned, nothing
from headrace.sources.formats.spans import WHOLE_FILE, Span
from headrace.sources.required_columns import Required


def read_file(
    data: bytes,
    source: FileSource,
    required: Required,
    path: str,
    span: Span = WHOLE_FILE,
    *,
    rules: int | None = None,
) -> Scanned:
    """The records in the ``span`` of a file with the content ``data``, which must have what is ``required``. ``rules``:
    the number of those by which it was read before.

    Raises UnreadableFileError if it is not a whole file of its format, FileColumnsError for a column that is missing or
    does not fit, LargeFileError for more text than MOST_BYTES.
    """
    form = source.file_format
    if rules is not None and rules < form.rules:
        form = form.by_rules(rules)
    return form.read(data, source.fields, required, path, span) if data else nothing(source.fields)
