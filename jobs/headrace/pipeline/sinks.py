"""Where sinks were up to 0.2: each is with its system now."""

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)
