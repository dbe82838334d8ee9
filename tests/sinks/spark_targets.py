"""A target of a user's for the sink through Spark: a table as Parquet files in a folder, without any table format."""

import fcntl
import json
from pathlib import Path
from uuid import uuid4

from pyspark.sql.functions import expr

from headrace.connectors.spark.ranges import ConnectedSession
from headrace.distribute.spark.application import DataFrame
from headrace.ext.sinks import SinkMovedError
from tests.sinks.worlds import state_of


class Folder:
    """Spark writes a new version of all rows; a file says which version counts, and what it holds."""

    def __init__(self, session: ConnectedSession) -> None:
        assert session.connection is not None
        self.session, self.folder = session, Path("/", session.connection.database)

    def held(self) -> str | None:
        state = state_of(self.folder)
        return None if state is None else state["said"]

    def rows(self) -> DataFrame:
        state = state_of(self.folder)
        assert state is not None
        return self.session.spark.read.parquet(str(self.folder / state["version"]))

    def apply(self, changes: DataFrame, old_state: str | None, new_state: str, *, replaces: bool) -> None:
        state, version = state_of(self.folder), uuid4().hex
        rows = changes.where("_sign > 0").drop("_sign")
        if state is not None and not replaces:
            names = changes.columns[1:]
            last = "window_end" if "window_end" in names else "user"  # which is the id of rows
            identity = names[: names.index(last) + 1]
            same = " and ".join(f"o.`{name}` <=> c.`{name}`" for name in identity)
            older = self.session.spark.read.parquet(str(self.folder / state["version"]))
            rows = older.alias("o").join(changes.alias("c"), on=expr(same), how="left_anti").unionByName(rows)
        rows.coalesce(1).write.parquet(str(self.folder / version))
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.held() != old_state:
                raise SinkMovedError("another delivery came between")
            written_path = self.folder / f"{version}.json"
            written_path.write_text(json.dumps({"version": version, "said": new_state}))
            written_path.replace(self.folder / "state.json")
