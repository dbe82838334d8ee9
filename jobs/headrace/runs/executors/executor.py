"""Where the port of executors was up to 0.2: it is ``headrace.ext.executors``."""

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)
