"""Users' own modules travel to tasks by value: those need not be able to import them."""

import sys

from pyspark import cloudpickle

from headrace.pipeline.loading.folders import package_of


def travels(module: str) -> None:
    """Let what ``module`` defines travel; if it lies beside a pipeline's file, also what the others there define."""
    cloudpickle.register_pickle_by_value(sys.modules[package_of(module) or module])  # type: ignore[no-untyped-call]
