"""Visits of a web site: a session of a user ends after half an hour without a click. A late click may join two
sessions; both are withdrawn then, and one takes their place.
"""

from datetime import datetime

import headrace as hr
from headrace import col

clicks = hr.json("landing/clicks", {"user": str, "at": datetime, "page": str}, max_files=1).event_time("at", bound="1h")

pipeline = hr.Pipeline(
    "sessions",
    clicks,
    key="user",
    what={
        "clicks": hr.count(),
        "first": col("page").first(),
        "last": col("page").last(),
        "pages": col("page").distinct(),
    },
    where=hr.Sessions("30m"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="12h"),
    executor="auto",
)
