"""Files as records: one scan of files of one kind, its columns typed as the source's schema says.

Every scan gives the declared columns, ``_path`` (Spark's URI of the file), ``_raw`` (the record as text, also one that
is not UTF-8) and ``_unparsed`` (why the record does not parse, or NULL); if asked, ``_position``, the record's number
in its file from 0, and ``_place``, something that sorts as the records of a file do.
Only column expressions, no Python per record.

**JSON lines.** A record is one JSON object on one line; blank lines are no records. A column takes its own JSON type: a
string, a number without fraction or exponent for int (3.0 is a float), any number for float, true or false for bool, a
string in ISO 8601 for timestamp. Anything else there is a wrong type, never a conversion. Missing and null are NULL; of
a repeated name the last counts; more than one object on a line is no record.

**CSV.** The first line is the header and gives the order; a repetition of it is no record either. Fields are quoted
with ``"``, doubled inside quotes; no line breaks in quotes. An empty field is NULL. Others must read as their column's
type (``read_text``). A record has exactly as many fields as the header.

**Parquet.** int8 to int64 and uint8 to uint32 are int, all of these and floats are float, timestamps of any unit (cut
to microseconds, UTC if they have no zone) and dates are timestamp.
"""

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.errors import readable_uri
from headrace.engine.expressions import named, read_text
from headrace.engine.source_files import NANOSECONDS, FileColumns
from headrace.engine.types import SPARK_TYPES, DataFrame, SparkColumn, SparkSession
from headrace.model.expr import DataType, Schema
from headrace.pipeline.sources import FileFormat
from headrace.sources.planning import VanishedFileError

RAW, PATH, UNPARSED, POSITION, PLACE = "_raw", "_path", "_unparsed", "_position", "_place"
_DOCUMENT, _SUSPECT, _PARSED, _CORRUPT, _BLOCK, _ROW = "_document", "_suspect", "_parsed", "_corrupt", "_block", "_row"

# Hadoop names are exact: never patterns, never partitions of a table.
_EXACT = {"__globPaths__": "false", "recursiveFileLookup": "true"}

_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_CSV_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "escape": '"'}

_RAW_OPTIONS = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

NOT_UTF8 = "not UTF-8"

_NOUN = {
    DataType.STRING: "a string",
    DataType.INT: "an int",
    DataType.FLOAT: "a float",
    DataType.BOOL: "a bool",
    DataType.TIMESTAMP: "a timestamp",
}


def scan(
    spark: SparkSession,
    kind: FileFormat,
    schema: Schema,
    columns: FileColumns,
    uris: Sequence[str],
    *,
    numbered: bool = False,
    ordered: bool = False,
) -> DataFrame:
    """Records of the files at ``uris`` (unescaped), which all hold their columns as ``columns`` says."""
    if kind is FileFormat.PARQUET:
        return _parquet(spark, schema, columns, uris, numbered=numbered, ordered=ordered)
    lines = _lines(spark, uris, numbered, ordered)
    return _json(schema, lines) if kind is FileFormat.JSON else _csv(schema, columns, lines)


def _complete(found: DataFrame, uris: Sequence[str]) -> DataFrame:
    """``found`` itself, if it reads every file. Spark says nothing when one is gone as it lists them."""
    gone = sorted(set(uris) - {readable_uri(uri) for uri in found.inputFiles()})
    if gone:
        raise VanishedFileError(gone[0])
    return found


# --- lines


def _lines(spark: SparkSession, uris: Sequence[str], numbered: bool, ordered: bool) -> DataFrame:
    """Lines that are not blank; positions are those among all lines of the file."""
    found = _complete(spark.read.options(**_EXACT).text(list(uris)), uris)
    if numbered:
        lines = _numbered(found.select("value", _path(), f.input_file_block_start().alias(_BLOCK)))
    else:
        # rows are counted up inside each block of a file, whichever blocks are read together
        place = f.struct(f.input_file_block_start().alias(_BLOCK), f.monotonically_increasing_id().alias(_ROW))
        lines = found.select("value", _path(), *([place.alias(PLACE)] if ordered else []))
    raw = f.col("value").alias(RAW)
    # Few lines begin with a blank, and trimming by a set of characters is slow.
    not_blank = f.when(f.col("value") >= "!", True).otherwise(f.trim("value", f.lit(" \t\r")) != "")
    return lines.where(not_blank).select("*", raw)


def _path() -> SparkColumn:
    # Not _metadata.file_path: Spark reads all metadata then, even where nobody uses the path.
    return f.input_file_name().alias(PATH)


def _numbered(lines: DataFrame) -> DataFrame:
    """``lines`` with their positions: rows are counted inside each block of a file, blocks follow one another.

    Spark cuts large files into blocks and packs blocks of several files into a partition, in the same way every time.
    """
    rows = lines.withColumn(_ROW, f.monotonically_increasing_id())
    blocks = rows.groupBy(PATH, _BLOCK).agg(f.count(f.lit(1)).alias("rows"), f.min(_ROW).alias("first"))
    earlier = Window.partitionBy(PATH).orderBy(_BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    shift = (f.coalesce(f.sum("rows").over(earlier), f.lit(0)) - f.col("first")).alias("shift")
    starts = blocks.select(f.col(PATH).alias("block_path"), f.col(_BLOCK).alias("block_start"), shift)
    same_block = (f.col(PATH) == f.col("block_path")) & (f.col(_BLOCK) == f.col("block_start"))
    position = (f.col(_ROW) + f.col("shift")).alias(POSITION)
    return rows.join(f.broadcast(starts), same_block).select("value", PATH, position)


def _kept(lines: DataFrame) -> list[str]:
    return [name for name in (PATH, RAW, POSITION, PLACE) if name in lines.columns]


# --- JSON lines


def _json(schema: Schema, lines: DataFrame) -> DataFrame:
    kept = _kept(lines)
    # Spark would make timestamps of numbers; of strings we read them ourselves.
    fields = [t.StructField(n, SPARK_TYPES[_STORED_IN_JSON.get(k, k)]) for n, k in schema.items()]
    parsed = f.from_json("value", t.StructType([*fields, t.StructField(_CORRUPT, t.StringType())]), _JSON_OPTIONS)
    rows = lines.select(*kept, "value", parsed.alias(_PARSED)).select("*", _suspect(schema).alias(_SUSPECT))
    document = f.when(f.col(_SUSPECT), f.try_parse_json(f.concat(f.lit("["), f.col("value"), f.lit("]"))))
    rows = rows.select(*kept, _PARSED, _SUSPECT, document.alias(_DOCUMENT))
    reason = f.when(f.col(_SUSPECT), _json_reason(schema))
    values = [f.col(_PARSED)[n].alias(n) for n in schema]
    return _typed(rows.select(*kept, reason.alias(UNPARSED), *values), schema, [DataType.TIMESTAMP], kept)


_STORED_IN_JSON = {DataType.TIMESTAMP: DataType.STRING}


def _suspect(schema: Schema) -> SparkColumn:
    """Whether a record must be looked at again, slowly: it did not fit, or Spark may have read it too kindly.

    Spark takes anything for a string, so a string that looks like another JSON value may have been one; and it ignores
    what follows the first object, which can only be after a ``}``.
    """
    parsed = f.col(_PARSED)
    # On bytes: instr and length count characters, which costs as much as parsing the record.
    before_last = f.substring(f.col("value").cast("binary"), f.lit(1), f.octet_length("value") - 1).cast("string")
    one_brace_at_the_end = f.endswith("value", f.lit("}")) & ~f.contains(before_last, f.lit("}"))
    suspect = parsed.isNull() | parsed[_CORRUPT].isNotNull() | ~one_brace_at_the_end
    suspect = suspect | ~f.is_valid_utf8("value") | _may_be_half_a_character("value")
    for name, kind in schema.items():
        if kind is DataType.STRING:
            first = f.substring(parsed[name], 1, 1)
            looks_otherwise = first.isin(*"-0123456789[{") | parsed[name].isin("true", "false")
            suspect = suspect | f.coalesce(looks_otherwise, f.lit(False))
    return suspect


def _json_reason(schema: Schema) -> SparkColumn:
    """Why the document is no record, NULL if it is one. The document is the line as the only element of an array."""
    whole = _json_type("$[0]")
    alone = f.schema_of_variant(f.col(_DOCUMENT)).startswith("ARRAY<OBJECT<") & f.isnull(_element("$[1]"))
    reason = f.when(~f.is_valid_utf8(RAW), NOT_UTF8)
    reason = reason.when(_may_be_half_a_character(RAW) & _is_half_a_character(RAW), "a lone surrogate")
    reason = reason.when(~f.coalesce(alone & whole.startswith("OBJECT<"), f.lit(False)), "not a JSON object")
    for name, kind in schema.items():
        found = _json_type(f"$[0]{_member(name)}")
        reason = reason.when(~_fits(found, kind), f"column {name}: not {_NOUN[kind]}")
    return reason.when(f.col(_PARSED)[_CORRUPT].isNotNull(), "does not fit the columns of the source")


def _may_be_half_a_character(text: str) -> SparkColumn:
    return f.contains(text, f.lit("\\ud")) | f.contains(text, f.lit("\\uD"))


def _is_half_a_character(text: str) -> SparkColumn:
    """Whether JSON ``text`` escapes half of a surrogate pair: no character, and Spark makes the same of all of them."""
    whole = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    return f.regexp_replace(text, whole, " ").rlike(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def _element(path: str) -> SparkColumn:
    return f.try_variant_get(f.col(_DOCUMENT), path, "variant")


def _json_type(path: str) -> SparkColumn:
    return f.schema_of_variant(_element(path))


def _member(name: str) -> str:
    return f"['{name}']" if '"' in name else f'["{name}"]'


def _fits(found: SparkColumn, kind: DataType) -> SparkColumn:
    """Whether a value of JSON type ``found`` (as Spark's variants name them) may stand in a column of ``kind``."""
    match kind:
        case DataType.INT:
            fits = found == "BIGINT"
        case DataType.FLOAT:
            fits = found.isin("BIGINT", "DOUBLE") | found.startswith("DECIMAL")
        case DataType.BOOL:
            fits = found == "BOOLEAN"
        case _:
            fits = found == "STRING"
    return f.coalesce(fits | (found == "VOID"), f.lit(True))


# --- CSV


def _csv(schema: Schema, columns: FileColumns, lines: DataFrame) -> DataFrame:
    kept = _kept(lines)
    records = lines.where(f.col("value") != f.lit(columns.header))
    fields = ", ".join(f"_c{i} string" for i in range(columns.width))
    parsed = f.from_csv("value", f"{fields}, {_CORRUPT} string", _CSV_OPTIONS)
    rows = records.select(*kept, "value", parsed.alias(_PARSED))
    quotes = f.length("value") - f.length(f.replace("value", f.lit('"'), f.lit("")))
    reason = (
        f.when(~f.is_valid_utf8("value"), NOT_UTF8)
        .when(f.contains("value", f.lit('"')) & (quotes % 2 != 0), "a quote is not closed on its line")
        .when(f.col(_PARSED)[_CORRUPT].isNotNull(), f"not {columns.width} fields, as the header has")
        .alias(UNPARSED)
    )
    positions = dict(columns.stored)
    values = [
        (f.col(_PARSED)[f"_c{positions[n]}"] if n in positions else f.lit(None).cast("string")).alias(n) for n in schema
    ]
    return _typed(rows.select(*kept, reason, *values), schema, list(DataType), kept)


def _typed(rows: DataFrame, schema: Schema, from_text: Sequence[DataType], kept: Sequence[str]) -> DataFrame:
    """``rows`` with columns whose kind is in ``from_text`` read; one that does not read makes the record unparsed."""
    texts = {n: k for n, k in schema.items() if k in from_text and k is not DataType.STRING}
    if not texts:
        return rows
    read = {n: f"_typed_{i}" for i, n in enumerate(texts)}
    typed = [read_text(named(n), k).alias(read[n]) for n, k in texts.items()]
    reason = f.col(UNPARSED)
    for name, kind in texts.items():
        misread = named(name).isNotNull() & f.col(read[name]).isNull()
        reason = f.coalesce(reason, f.when(misread, f"column {name}: not {_NOUN[kind]}"))
    values = [f.col(read[n]).alias(n) if n in read else named(n) for n in schema]
    return rows.select("*", *typed).select(*kept, reason.alias(UNPARSED), *values)


# --- Parquet


def _parquet(
    spark: SparkSession, schema: Schema, columns: FileColumns, uris: Sequence[str], *, numbered: bool, ordered: bool
) -> DataFrame:
    stored = dict(columns.stored)
    reads = {name: "bigint" if kind == NANOSECONDS else kind for name, kind in stored.items()}
    fields = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in reads.items())
    found = _complete(spark.read.options(**_EXACT).schema(fields).parquet(*uris), uris)
    values = [_stored_value(name, kind, stored).alias(name) for name, kind in schema.items()]
    position = [f.col("_metadata.row_index").alias(POSITION)] if numbered else []
    row = f.col("_metadata.row_index")
    place = [f.struct(f.lit(0).cast("long").alias(_BLOCK), row.alias(_ROW)).alias(PLACE)] if ordered else []
    raw, unparsed = as_text(map(named, schema)), f.lit(None).cast("string")
    for name, kind in [*schema.items()][::-1]:
        if kind is DataType.STRING and name in stored:
            unparsed = f.when(~f.is_valid_utf8(named(name)), f"column {name}: {NOT_UTF8}").otherwise(unparsed)
    return found.select(_path(), *position, *place, *values).select("*", raw, unparsed.alias(UNPARSED))


def as_text(values: Iterable[SparkColumn]) -> SparkColumn:
    """``RAW`` of what never was text: JSON of ``values``, NULLs included, timestamps to the microsecond."""
    return f.to_json(f.struct(*values), _RAW_OPTIONS).alias(RAW)


def _stored_value(name: str, kind: DataType, stored: Mapping[str, str]) -> SparkColumn:
    if name not in stored:
        return f.lit(None).cast(SPARK_TYPES[kind])
    if stored[name] == NANOSECONDS:
        quoted = f"`{name.replace('`', '``')}`"
        return f.timestamp_micros(f.expr(f"({quoted} - pmod({quoted}, 1000L)) div 1000L"))
    return named(name).cast(SPARK_TYPES[kind])
