"""Pipelines in several roots, and their stores."""

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.store import ObjectStore, open_store


@dataclass(frozen=True, order=True)
class PlacedPipeline:
    """A pipeline under a ``root``; the root is "" where it is the one that was asked about."""

    root: str
    name: str

    def __str__(self) -> str:
        return f"{self.root}/{self.name}" if self.root else self.name


@dataclass(frozen=True)
class RootStores:
    """The stores of the roots that pipelines lie in: the ``own`` one, and those that are ``opened`` by their URIs."""

    own: ObjectStore
    opened: Callable[[str], ObjectStore] = open_store

    def of(self, root: str) -> ObjectStore:
        """The store of a placed pipeline's root."""
        return self.opened(root) if root else self.own

    def placed(self, root: str, name: str) -> PlacedPipeline:
        """The pipeline ``name`` under the root whose URI that is."""
        return PlacedPipeline("" if root == self.own.uri else root, name)

    def catalog(self, at: PlacedPipeline, output: str = "") -> Catalog:
        """A pipeline's catalog, for readers of the ``output``."""
        return seen_catalog(Catalog(self.of(at.root), at.name), output)


@dataclass(frozen=True)
class KeptCatalogs(RootStores):
    """Stores whose catalogs are kept: what one of them has read of what never changes is read once."""

    kept: dict[PlacedPipeline, Catalog] = field(default_factory=dict)

    def catalog(self, at: PlacedPipeline, output: str = "") -> Catalog:
        """A pipeline's catalog, for readers of the ``output``."""
        if at not in self.kept:
            self.kept[at] = Catalog(self.of(at.root), at.name)
        return seen_catalog(self.kept[at], output)
