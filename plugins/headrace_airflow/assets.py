"""Where names of assets were up to 0.2: ``windows_asset`` is in ``headrace.ext.airflow``."""

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)
