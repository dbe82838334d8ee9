"""Spark code of a user, named by the pipelines of ``test_transforms``."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def words(rows: DataFrame) -> DataFrame:
    return rows.withColumn("word", f.explode(f.split("text", " ")))


def marked(rows: DataFrame) -> DataFrame:
    return rows.select("*", f.split("text", " ")[0].alias("word"), f.uuid().alias("mark"))


def doubled(rows: DataFrame) -> DataFrame:
    both = f.array(f.lit("once"), f.lit("again"))
    return rows.withColumn("times", f.explode(both))


def forgetful(rows: DataFrame) -> DataFrame:
    return rows.select("text", "at", f.col("text").alias("word"))


def mistyped(rows: DataFrame) -> DataFrame:
    return rows.withColumn("word", f.length("text"))


def failing(rows: DataFrame) -> DataFrame:
    return rows.select("*", f.col("nowhere").alias("word"))


def nothing(rows: DataFrame) -> None:
    del rows


def tags(rows: DataFrame) -> DataFrame:
    return rows.withColumn("word", f.explode("tags"))
