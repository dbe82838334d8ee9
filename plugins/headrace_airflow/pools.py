"""Pools: one per pipeline, with the one slot that every task holds that writes the pipeline's state.

``python -m headrace_airflow.pools create [PIPELINE...]`` makes (or repairs) them; it needs the metadata database.
"""

import argparse
import sys

from airflow.models.pool import Pool

from headrace.pipeline.registry import registered_files
from headrace_airflow.settings import pool_name


def create(pipelines: list[str]) -> list[str]:
    """Make the pool of each pipeline, or set an existing one right; the pools' names."""
    names = [pool_name(pipeline) for pipeline in pipelines]
    for pipeline, name in zip(pipelines, names, strict=True):
        Pool.create_or_update_pool(name, 1, f"One writer at a time: pipeline {pipeline}", include_deferred=True)
    return names


def main(arguments: list[str]) -> int:
    """The command; exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m headrace_airflow.pools", description=__doc__)
    parser.add_argument("command", choices=["create"])
    parser.add_argument("pipelines", nargs="*", help="names; default: every registered pipeline")
    given = parser.parse_args(arguments)
    for name in create(given.pipelines or [*registered_files().pipelines]):
        sys.stdout.write(f"pool {name}: 1 slot\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
