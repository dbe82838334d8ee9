"""Layers of the view ``current`` folded beside the epochs: begun with a commit, taken over by a later one."""

from dataclasses import dataclass

from headrace.distribute.tasks.background.merge import LayerMerge
from headrace.distribute.tasks.background.merges import MOST_LAYERS
from headrace.distribute.tasks.background.thread import Beside
from headrace.ext.executors import Engine
from headrace.read.views.columns import View, ViewColumns
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.layers import plan_merge

Layers = tuple[Layer, ...]


@dataclass(frozen=True)
class _Folded:
    """Neighbouring layers, and the files that they became."""

    merging: LayerMerge
    files: tuple[DataFile, ...]


class Folds:
    """What is folded of the ``current`` of an ``output`` of one branch while it is written, one piece of work at a
    time.
    """

    def __init__(self, engine: Engine, columns: ViewColumns, output: str) -> None:
        self._engine, self._columns, self._output = engine, columns, output
        self._beside = Beside[_Folded]("fold")

    def begin(self, layers: Layers, prefix: str) -> None:
        """Begin what is to be folded of committed ``layers``, into files below ``prefix``, unless a fold is running."""
        start = None if self._beside.is_running else plan_merge([layer.rows for layer in layers])
        if start is None:
            return
        merging = LayerMerge(layers[start:], start == 0)
        names = {
            file.path: self._columns.names(View.CURRENT, layer.last_epoch)
            for layer in merging.layers
            for file in layer.files
        }
        self._beside.begin(
            lambda stop: _Folded(
                merging,
                self._engine.compact_current(
                    merging.layers, prefix, bottom=merging.is_lowest, names=names, stop=stop, output=self._output
                ),
            )
        )

    def adopted(self, layers: Layers, *, wait: bool) -> Layers:
        """``layers`` with what was folded meanwhile; what is still being folded is waited for if the caller says so, or
        if there are very many layers. Raises the error that ended a fold.
        """
        wait = wait or len(layers) > MOST_LAYERS
        if not (self._beside.is_done or (wait and self._beside.is_running)):
            return layers
        compacted = self._beside.result()
        return compacted.merging.replaced(layers, compacted.files)

    def close(self) -> None:
        """End the fold that is running, if one is, and wait until it writes nothing more."""
        self._beside.close()
