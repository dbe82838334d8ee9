"""Names of the columns that executors add to rows, in one place. They start with ``_``, which users' columns may
not.
"""

from headrace.model import changelog

EVENT_TIME = "_event_time"  # long, granules; of elements
REJECT = "_reject"  # why a record takes no part; NULL if it does
ADMITTED = "_admitted"  # whether the filter is TRUE
SEEN = "_seen"  # what its id says of a record (``duplicates``); NULL if it is new
SPLIT = "_split"  # the split that a record speaks for
MARK = "_mark"  # ... and what it says of it, in granules: its event time, or what the strategy reads instead
ID = "_id"  # what duplicates of a record have in common
WINDOW_START = "_ws"  # long, granules; accounting groups of a delta sit at codes below every real window
WINDOW_END = "_we"
HASH = "_h"  # uint64, the hash of the key (kernel.keys)
EPOCH = "_epoch"  # the epoch that wrote a state row
STATUS = "_status"  # OPEN, CLOSED or DELETED
DUE_EVENT = "_due_event"  # the row wants an activation once the watermark exceeds this
DUE_TIME = "_due_time"  # ... once the processing-time clock reaches this
NEW = "_new"  # elements since the last pane
HOLD = "_hold"  # timestamp that pending on-time elements give their pane; NULL when none is pending
NET = "_net"  # elements less retractions (kept where withdrawing all of them ends a pane)
INDEX = "_index"  # index of the next pane
NONSPECULATIVE = "_nonspec"  # index of the next pane that is not EARLY
LIVE = "_live"  # the retractions of emitted, not yet retracted panes (retracting only)

SAME = "_same"  # the only live pane has the window and the values that a pane would have now
LIVE_TIME = "_live_time"  # ... and its timestamp

COUNT = "_n"  # elements of the delta, retractions included
RETRACTED = "_nr"  # retractions among the elements of the delta
HELD = "_held"  # of the delta's elements that are not behind the output watermark the earliest or latest timestamp
SIZE = "_size"  # bytes of an element
RECORD = "_record"  # what users' own objects see of an element
TIMES = "_times"  # event times of the delta's elements, where a user's own function stamps them in merged windows
KEPT = "_kept_last"  # the last elements of a window, where it holds no more
MOMENT = "_moment"  # when in the epoch a pane was emitted (kernel.step)
SEQUENCE = "_sequence"  # its place among the records of its window
OUTPUT = "_output"  # the place among the outputs that another one reads of the one that gave a pane
SIGN = changelog.SIGN  # 1 for an element, -1 for one that is withdrawn
HAS_STATE = "_has"  # an open window is in the state
WAS_CLOSED = "_was_closed"  # a closed marker is in the state
STORED = "_stored"  # either of them is, of exactly this window: if it goes, a tombstone must hide it
MERGED = "_merged"  # the window came out of a merge that the trigger must learn of

# the clocks of the epoch, as the program reads them
WATERMARK_BEFORE = "_w0"
WATERMARK_AFTER = "_w1"
PROCESSING_TIME = "_p"
HEARD = "_heard_"  # whether a signal came; followed by the position of its name among those of the trigger
PERCENTILE_BEFORE = "_q0_"  # followed by the position of the percentile among those of the trigger
PERCENTILE_AFTER = "_q1_"

OPEN, CLOSED, DELETED = 0, 1, 2
