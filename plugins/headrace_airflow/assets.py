"""The asset of a pipeline: what its readers see. Its events carry {epoch, snapshot, rows, watermark}."""

from dataclasses import dataclass
from typing import Any

from airflow.sdk import Asset, AssetAlias, Context

from headrace_airflow.roots.root import Root


@dataclass(frozen=True)
class Published:
    """What readers of ``pipeline`` under ``root`` see, as a task tells of it.

    Who asks Airflow to materialize an asset means the one DAG whose tasks have it as their outlet (``is_made_here``).
    Tasks of other DAGs give it events through an alias: for those downstream there is no difference.
    """

    root: Root
    pipeline: str
    is_made_here: bool = False

    @property
    def asset(self) -> Asset:
        """The asset itself."""
        return Asset(
            name=self.root.named(self.pipeline), uri=f"headrace://{self.root.qualified(self.pipeline)}/published"
        )

    @property
    def outlet(self) -> Asset | AssetAlias:
        """What a task that tells of it declares."""
        return self.asset if self.is_made_here else AssetAlias(name=f"{self.root.named(self.pipeline)}_moved")

    def announce(self, context: Context, became: dict[str, Any]) -> None:
        """Give this task's event what readers see now, as its summary ``became`` has it."""
        extra = {key: became[key] for key in ("epoch", "snapshot", "counts", "watermark")}
        events = context["outlet_events"][self.outlet]
        if self.is_made_here:
            events.extra = extra
        else:
            events.add(self.asset, extra=extra)
