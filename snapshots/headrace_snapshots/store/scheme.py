"""Where schemes of stores were up to 0.2: they are in ``headrace.ext.stores``."""

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)
