"""What branches and tags point to."""

from headrace.errors import FixConfigError
from headrace_snapshots.catalog import MAIN, PUBLISHED, Catalog
from headrace_snapshots.format.manifest import Manifest


class UnknownBranchError(FixConfigError):
    """A branch or tag that the catalog does not have."""

    code = "config.unknown_branch"


def manifest_of(catalog: Catalog, branch: str) -> Manifest | None:
    """The manifest at the head of a branch or tag, None if ``main`` or ``published`` has no snapshot yet.

    Raises UnknownBranchError.
    """
    refs = catalog.head().refs
    if branch in refs:
        return catalog.manifest(refs[branch])
    if branch in (MAIN, PUBLISHED):
        return None
    raise UnknownBranchError(f"there is no branch or tag {branch!r}; there are {', '.join(sorted(refs)) or 'none'}")
