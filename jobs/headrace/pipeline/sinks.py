"""Where sinks were up to 0.2: each is with its system now."""

from headrace.moved import moved

__getattr__ = moved(__name__)
