"""What each user watched lately, refreshed on the clock: the Dataflow paper's recommendations on processing-time
triggers (section 3.3.5). A partial tree of a user's activity every ten minutes is worth more than the whole one at the
end, and no watermark needs to be waited for.

The window is a session of the user's activity with gaps below 30 minutes. Its trigger looks at the clock alone: each
ten minutes (12:10, 12:20, ...) every session with news is emitted again, with all it holds, and what was emitted before
is withdrawn, since sessions merge. The watermark only says when a session is forgotten: a day after its end. Processing
time is as precise as the schedule: run this one every ten minutes. A run without new files still emits what is due.

Telephones report when they have a network, so activity arrives out of order and up to some hours late.

    python scripts/land_scenarios.py recommendations --root file:///tmp/activity
    headrace run jobs/pipelines/scenarios/recommendations.py --root file:///tmp/activity  # again ten minutes later
    headrace read jobs/pipelines/scenarios/recommendations.py --root file:///tmp/activity
"""

from datetime import datetime

import headrace as hr
from headrace import col

activity_of_users = hr.json("landing/activity", {"user": str, "video": str, "at": datetime}, max_files=4).event_time(
    "at", bound="15m"
)

activity = hr.Pipeline(
    "recommendations",
    activity_of_users,
    description="The videos of each user's sessions, refreshed every ten minutes.",
    key="user",
    what={
        "views": hr.count(),
        "videos": col("video").distinct(),
        "latest": col("video").last(),
        "watched": col("video").collect(),
    },
    where=hr.Sessions("30m"),
    when=hr.Repeatedly(hr.AfterProcessingTime(align="10m")),
    how=hr.retracting(allowed_lateness="1d"),
    expectations=(
        hr.expect("column_values_to_be_between", column="views", min_value=1),
        hr.expect("column_pair_values_a_to_be_greater_than_b", column_A="views", column_B="videos", or_equal=True),
        hr.expect("compound_columns_to_be_unique", column_list=["user", "window_start"]),
    ),
)
