"""Where the port of stores was up to 0.2: it is ``headrace.ext.stores``."""

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)
