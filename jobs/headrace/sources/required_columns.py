"""Where what files must have was up to 0.2: it is ``headrace.ext.formats``."""

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)
