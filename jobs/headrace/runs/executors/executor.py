"""Where the port of executors was up to 0.2: it is ``headrace.ext.executors``."""

from headrace.moved import moved

__getattr__ = moved(__name__)
