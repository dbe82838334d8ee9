"""Where what files must have was up to 0.2: it is ``headrace.ext.formats``."""

from headrace.moved import moved

__getattr__ = moved(__name__)
