"""Where the port of families was up to 0.2: it is ``headrace.ext.airflow``."""

from headrace.moved import moved

__getattr__ = moved(__name__)
