"""The pipeline of ``tests/golden/format-3-texts``: text is read in every place where an expression can stand, and
floats vary that are taken back.
"""

from datetime import datetime

import headrace as hr
from headrace import col

_COLUMNS = {"till": str, "at": str, "booked": datetime, "note": str, "kilos": float, "cents": int}
_TIME = col("at").cast(datetime)
_NOTE_TIME = col("note").cast(datetime)

TILLS = hr.Pipeline(
    "tills",
    hr.csv("landing/tills", _COLUMNS).event_time(hr.coalesce(_TIME, col("booked")), bound="1h"),
    union=[hr.json("landing/web", _COLUMNS).event_time(_TIME, bound="1h").named("web")],
    outputs={
        "hourly": hr.Output(
            key={"till": col("till"), "noted": hr.coalesce(_NOTE_TIME, _TIME, col("booked")).truncate("hour")},
            filter=hr.coalesce(_NOTE_TIME, col("booked")).is_not_null(),
            what={
                "cents": hr.if_else(_NOTE_TIME.is_null(), -col("cents"), col("cents")).sum(),
                "noted_last": _NOTE_TIME.max(),
                "note": col("note").max(),
                "spread": col("kilos").variance(),
                "kilos": col("kilos").mean(),
            },
            where=hr.FixedWindows("1h"),
            when=hr.on_update(),
            how=hr.retracting(allowed_lateness="2h"),
        ),
        "daily": hr.Output(
            of="hourly",
            key={"noted": hr.coalesce(_NOTE_TIME, col("noted")).truncate("day")},
            what={
                "cents": col("cents").sum(),
                "spread": col("spread").variance(),
                **{f"spread_{factor}": (col("kilos") * 0.1 * factor).variance() for factor in range(1, 6)},
                "last": _NOTE_TIME.max(),
                "text": col("note").max(),
            },
            having=hr.coalesce(col("text").cast(datetime).is_not_null(), False) | (col("cents") > -20_000),
            where=hr.FixedWindows("1d"),
            when=hr.on_update(),
            how=hr.retracting(allowed_lateness="2h"),
        ),
    },
    executor="local",
)
