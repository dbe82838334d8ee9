"""Formats: how files, and messages, become records.

What belongs here: the port of file formats, what reading gives, and what formats of text share. The definitions lie one
floor below, in ``headrace.formats``, where Headrace's own formats are; these move behind this module, and it to them.

To bring a format, write a subclass of ``FileFormat``, or of ``TextFormat`` if records are lines. Declare an instance of
it, and users write ``hr.FileSource("landing/hits", "logfmt", {...})``::

    [project.entry-points."headrace.formats"]
    logfmt = "my_package.logfmt:LOGFMT"

**Order of calls.** In tasks, in many threads at once: ``is_divisible`` by the name of a file; ``by_rules``, if the file
was read by older rules; then ``read`` of the whole file, or of each of its spans. A ``TextFormat`` does that itself: it
takes files out of their compression, cuts lines, and calls ``read_lines`` with those of a span. Where late records and
dead letters land again: ``header`` of the files that had them, ``stands_alone`` of each, and ``copied``. In unit tests:
``written``.

**What is guaranteed.** ``data`` is the whole content of a file, and is never empty. ``fields`` says of each column of
the source where it lies in a record (``place``) and what it holds (``type``). ``required`` is what must be there:
``required.check`` raises what is to be said otherwise.

A test of a format reads as a run does: ``read_file(data, source, RequiredColumns(), "hits.logfmt")``.

**What a format guarantees.** It never guesses: a record that it cannot read is one with a reason in ``unparsed``, and
becomes a dead letter. One bad record fails no other. Nothing but ``data`` and the arguments is looked at, so a file
gives the same records each time, with the same positions; spans together give what the whole gives. A format that
changes which records it reads of a file has the next number of ``rules``. It reads by the older rules what was read by
them.

Example::

    import pyarrow as pa

    import headrace as hr
    from headrace.ext.formats import NOT_UTF8, WHOLE_FILE, RequiredColumns, ScannedRecords, TextFormat, typed


    class Logfmt(TextFormat):
        name, suffix = "logfmt", ".logfmt"

        def read_lines(self, lines, header, fields, required, path):
            records = [self._pairs(line) for line in lines.text.to_pylist()]
            texts = {
                name: pa.array([record.get(field.place) for record in records], pa.string())
                for name, field in fields.items()
            }
            reasons = pa.array([None if is_text else NOT_UTF8 for is_text in lines.is_utf8], pa.string())
            columns, reasons = typed(texts, reasons, fields, [*hr.DataType])
            return ScannedRecords(columns, reasons, lines.position, lambda rows: lines.text.take(pa.array(rows)))

        def written(self, records, fields):
            return "".join(f"{self._line(record, fields)}\\n" for record in records).encode()

        def _pairs(self, line):
            words = line.decode(errors="replace").split()
            return dict(word.split("=", 1) for word in words if "=" in word)

        def _line(self, record, fields):
            if isinstance(record, str):
                return record
            return " ".join(f"{fields[name].place}={value}" for name, value in record.items())


    LOGFMT = Logfmt()

    fields = hr.json("landing/hits", {"page": str, "size": int}).fields
    hits = LOGFMT.read(b"page=a size=4\\npage=b size=many\\n", fields, RequiredColumns(), "hits.logfmt", WHOLE_FILE)
    assert hits.columns["size"].to_pylist() == [4, None]
    assert hits.unparsed.to_pylist() == [None, "column size: not an int"]
"""

from typing import Final

from headrace.formats.fields import typed
from headrace.formats.file_format import (
    NOT_UTF8,
    WHOLE_FILE,
    FileColumnsError,
    FileFormat,
    MissingColumnError,
    RequiredColumns,
    ScannedRecords,
    Span,
    UnreadableFileError,
    misfit,
    nothing,
    read_file,
)
from headrace.formats.json_lines import JSON, read_json
from headrace.formats.lines import TextFormat, TextLines
from headrace.installed import EntryPointGroup
from headrace.model.expressions.columns import SourceField, SourceFields

__all__ = [
    "JSON",
    "NOT_UTF8",
    "WHOLE_FILE",
    "FileColumnsError",
    "FileFormat",
    "MissingColumnError",
    "RequiredColumns",
    "ScannedRecords",
    "SourceField",
    "SourceFields",
    "Span",
    "TextFormat",
    "TextLines",
    "UnreadableFileError",
    "misfit",
    "nothing",
    "read_file",
    "read_json",
    "typed",
]

FORMATS: Final[EntryPointGroup[FileFormat]] = EntryPointGroup("headrace.formats", "file format")
"""The code of formats by their name; it is imported when a file is read or written."""
