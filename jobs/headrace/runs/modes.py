"""The modes of a run, apart from its other options: a command line that only names them starts sooner."""

from enum import StrEnum


class Mode(StrEnum):
    """How input is cut into epochs, and under which clock; the pipeline is the same, and for input within its bound so
    are final panes.
    """

    MICRO_BATCH = "micro-batch"
    BATCH = "batch"
    REPLAY = "replay"
