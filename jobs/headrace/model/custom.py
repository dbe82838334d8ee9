"""What users' own objects in a pipeline have in common: how they are told apart, and what becomes of their errors."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from headrace.errors import PipelineError


@contextmanager
def user_code(owner: object, doing: str) -> Iterator[None]:
    """Raise what ``owner``, a user's own object, raises inside the block as a PipelineError that names it."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"{owner!r} could not {doing}: {error!r}") from error


def check_frozen(owner: object) -> None:
    """Raise PipelineError unless ``owner`` is a frozen dataclass: its fields are part of the pipeline's fingerprint."""
    params = getattr(type(owner), "__dataclass_params__", None)
    if params is None or not params.frozen:
        raise PipelineError(f"{owner!r} must be a frozen dataclass: put @dataclass(frozen=True) on its class")


def check_fields(owner: object, what: str, made: Collection[str], declared: Collection[str]) -> None:
    """Raise PipelineError unless ``what``, which ``owner`` made, has exactly the declared fields."""
    if set(made) != set(declared):
        raise PipelineError(
            f"{owner!r} made {what} with the fields {', '.join(sorted(made)) or 'of nothing'}; "
            f"it declares {', '.join(sorted(declared))}"
        )
