"""Spark code of a user, named by the pipelines of ``test_transforms``."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def words(rows: DataFrame) -> DataFrame:
    return rows.withColumn("word", f.explode(f.split("text", " ")))


def mark_words(rows: DataFrame) -> DataFrame:
    return rows.select("*", f.split("text", " ")[0].alias("word"), f.uuid().alias("mark"))


def double_rows(rows: DataFrame) -> DataFrame:
    both = f.array(f.lit("once"), f.lit("again"))
    return rows.withColumn("times", f.explode(both))


def forgetful(rows: DataFrame) -> DataFrame:
    return rows.select("text", "at", f.col("text").alias("word"))


def mistype_words(rows: DataFrame) -> DataFrame:
    return rows.withColumn("word", f.length("text"))


def failing(rows: DataFrame) -> DataFrame:
    return rows.select("*", f.col("nowhere").alias("word"))


def nothing(rows: DataFrame) -> None:
    del rows


def tags(rows: DataFrame) -> DataFrame:
    return rows.withColumn("word", f.explode("tags"))


def move_parts(rows: DataFrame) -> DataFrame:
    """Other structs, maps and lists, of the parts of these; keys descend, and zeros have a sign."""
    reversed_tags = f.map_from_entries(f.reverse(f.array_sort(f.map_entries("tags"))))
    names = f.array(f.col("address.city"), f.lit(None).cast("string"))
    place = f.struct(f.col("address.city").alias("city"), names.alias("names"), f.lit(-0.0).alias("zero"))
    lines = f.transform("items", lambda item: f.struct(item["marks"].alias("marks"), item["sku"].alias("sku")))
    return rows.withColumns({"place": place, "turned": reversed_tags, "lines": lines})


def keyed_twice(rows: DataFrame) -> DataFrame:
    """A map in which a key stands twice, which Spark's own functions refuse."""

    def with_marks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            marks = pa.array([[("a", 1), ("a", 2)]] * batch.num_rows, pa.map_(pa.string(), pa.int64()))
            yield batch.append_column("turned", marks)

    schema = rows.withColumn("turned", f.col("tags")).schema
    return rows.mapInArrow(with_marks, schema)


def move_days(rows: DataFrame) -> DataFrame:
    """A day that Python has, and one that it does not, alone and in a list."""
    first = f.make_date(f.lit(2026), f.lit(1), f.lit(1))
    day = f.when(f.col("id") == "late", f.make_date(f.lit(20_000), f.lit(1), f.lit(1))).otherwise(first)
    return rows.withColumns({"day": day, "days": f.array(day)})
