"""Where the port of sources was up to 0.2: it is ``headrace.ext.sources``."""

from headrace.moved import moved

__getattr__ = moved(__name__)
