"""Where the port of sinks was up to 0.2: it is ``headrace.ext.sinks``."""

from headrace.moved import moved

__getattr__ = moved(__name__)
