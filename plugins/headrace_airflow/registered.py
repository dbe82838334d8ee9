"""Pipeline files that cannot be used, as Airflow shows them: an import error of a file that has no DAGs."""

from headrace.errors import FixConfigError
from headrace_airflow.dags import built


class BrokenPipelineFilesError(FixConfigError):
    """Pipeline files that cannot be used, each with the reason."""

    code = "config.broken_pipeline_files"


def raise_broken() -> None:
    """Raise BrokenPipelineFilesError naming every broken file; nothing when there is none."""
    if broken := built().broken:
        raise BrokenPipelineFilesError("\n".join(broken.values()))
