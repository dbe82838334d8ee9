"""Where the port of sinks was up to 0.2: it is ``headrace.ext.sinks``."""

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)
