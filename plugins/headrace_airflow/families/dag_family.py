"""Where the port of families was up to 0.2: it is ``headrace.ext.airflow``."""

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)
