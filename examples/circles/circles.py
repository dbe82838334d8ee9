"""Who works with whom: authors and files of a repository's history that belong together, quarter by quarter.

An edge is a change of a file by an author. What hangs together by any number of changes is a circle, and is called by
the least of its members, which is an author. The data are 15 months of h11 (github.com/python-hyper/h11), landed with
``python scripts/land_history.py CLONE --root URI --anonymous``; any other clone will do.
"""

from datetime import datetime

import headrace as hr
from headrace import col, concat

history = hr.json("landing/history", {"author": str, "file": str, "at": datetime}, max_files=1).event_time(
    "at", bound="30d"
)

pipeline = hr.Pipeline(
    "circles",
    history,
    key={"author": concat("author ", col("author")), "path": concat("file ", col("file"))},
    loop=hr.Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True),
    where=hr.CalendarWindows("month", count=3),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="90d"),
    executor="auto",
)
