"""What is installed only for those who ask for it: the extras of the package, and the error where one is missing."""

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from headrace.errors import FixConfigError, NotInstalledError

Extra = Literal["spark", "airflow", "quality", "s3", "plots", "postgres", "delta", "iceberg", "kafka", "test"]

EXTRAS: Final[Mapping[Extra, tuple[str, ...]]] = {
    "spark": ("pyspark", "pandas"),
    "airflow": ("airflow", "airflow.providers.apache.spark", "httpx"),
    "quality": ("great_expectations", "pandas"),
    "s3": ("minio", "certifi", "urllib3"),
    "plots": ("matplotlib",),
    "postgres": ("psycopg",),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg", "pyiceberg_core", "sqlalchemy"),
    "kafka": ("aiokafka", "urllib3"),
    "test": ("pytest",),
}
"""The modules that each extra brings for Headrace's own use."""


class PysparkClientError(FixConfigError, code="config.pyspark_client"):
    """``pyspark-client`` was installed over the files of ``pyspark``: what runs is neither."""


def require(extra: Extra, what: str, instead: str = "") -> None:
    """Raise NotInstalledError unless ``extra`` is installed, which ``what`` needs; ``instead``: what does without."""
    if missing := [module for module in EXTRAS[extra] if not _is_there(module)]:
        are = "which is not installed" if len(missing) == 1 else "which are not installed"
        hint = f"; or {instead}" if instead else ""
        raise NotInstalledError(f"{what} needs {' and '.join(missing)}, {are}: pip install 'headrace[{extra}]'{hint}")
    if extra == "spark" and (spark := _has("pyspark")) and (client := _has("pyspark-client")):
        raise PysparkClientError(
            f"pyspark-client {client} is installed over the files of pyspark (Airflow's Spark provider asks for it): "
            "pip uninstall -y pyspark-client && pip install --force-reinstall --no-deps "
            f"pyspark=={spark}"
        )


def require_library(library: str, what: str, source: str = "") -> None:
    """Raise NotInstalledError unless ``library`` is installed, which ``what`` needs and no extra brings.

    ``source`` says what pip installs it from, if not by its name.
    """
    if not _is_there(library):
        raise NotInstalledError(f"{what} needs {library}, which is not installed: pip install {source or library}")


def _is_there(module: str) -> bool:
    package, *inner = module.split(".")
    # the packages of a module are imported to find it, which for Airflow takes seconds: look for its folder first
    if inner and any(Path(place, package, *inner).is_dir() for place in sys.path):
        return True
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package
        return False


def _has(distribution: str) -> str | None:
    """The installed version of ``distribution``."""
    from importlib.metadata import PackageNotFoundError, version  # with a parser of e-mail: only where it is asked

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
