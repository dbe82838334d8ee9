"""Where the port of stores was up to 0.2: it is ``headrace.ext.stores``."""

from headrace.moved import moved

__getattr__ = moved(__name__)
