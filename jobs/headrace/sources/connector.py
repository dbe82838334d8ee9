"""Where the port of sources was up to 0.2: it is ``headrace.ext.sources``."""

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)
