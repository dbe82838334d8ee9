"""Every file once: whatever names are, whatever order files land in, and however the history of a branch goes on."""

import json
import os
import random
from collections import Counter
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, note
from hypothesis import strategies as st

import headrace as hr
from headrace_lab.sizes import set_sizes
from tests.reference.strategies import examples

MOST = 5_000 if "HEADRACE_EXAMPLES" in os.environ else 120

LAYOUTS = {
    "shops": lambda number, draw: f"shop={draw.randrange(40):02}/{number // 40:05}-{number}.json",
    "hosts": lambda number, draw: f"host-{draw.choice('abcdef')}.{number:06}.json",
    "uuids": lambda number, draw: f"part-00000-{draw.getrandbits(64):016x}-{number}.json",
    "dates": lambda number, draw: f"dt=2024-01-{1 + max(0, number // 40 - draw.choice([0, 0, 0, 9])):02}/{number}.json",
    "deep": lambda number, draw: f"_of={draw.choice('xyz')}/{draw.choice('ab')}/{draw.choice('mn')}-{number}.json",
    "ascending": lambda number, draw: f"{number:08}.json",
    "descending": lambda number, draw: f"{99_999_999 - number:08}.json",
    "mixed case": lambda number, draw: f"{draw.choice(['Ä', 'ä', 'Z', 'z', '~', '!', '🚰'])} {number}.json",
}

STEPS = ["land and run"] * 5 + ["land", "rollback", "branch", "backfill", "expire", "touch"]


def pipeline(names: str = "any") -> hr.Pipeline:
    """How often the record of each file counts."""
    own, other = (
        hr.json(path, {"name": str, "at": datetime}, max_files=MOST, names=names).event_time("at", bound="1h")
        for path in ("landing", "others")
    )
    return hr.Pipeline(
        "layouts",
        own,
        union=[other.named("others")],
        key="name",
        what={"n": hr.count()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        how=hr.retracting("90d"),
        executor="local",
    )


class World:
    """A root with a landing folder, and what has landed there."""

    def __init__(self, root: Path, layouts: tuple[str, str], seed: int) -> None:
        self.root, self.draw = root, random.Random(seed)
        self.names = {folder: LAYOUTS[layout] for folder, layout in zip(("landing", "others"), layouts, strict=True)}
        self.landed_names: list[str] = []
        self.seen_snapshots: set[str] = set()
        """Snapshots that readers have seen, to which a rollback may go."""
        self.branches = 0

    @property
    def handle(self) -> hr.types.PipelineHandle:
        return hr.open(self.root.as_uri(), create=True)[pipeline()]

    def land(self, files: int) -> None:
        for _ in range(files):
            folder = self.draw.choice(["landing", "landing", "others"])
            name = f"{folder}/{self.names[folder](len(self.landed_names), self.draw)}"
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"name": name, "at": "2024-01-01T00:00:00Z"}))
            self.landed_names.append(name)

    def do(self, step: str, files: int) -> None:
        match step:
            case "land":
                self.land(files)
            case "land and run":
                self.land(files)
                self.seen_snapshots.add(
                    self.handle.run(files_per_epoch=self.draw.choice([None, 7, 60])).published or ""
                )
            case "touch" if self.landed_names:  # a copy: another ETag, the same content
                for name in self.draw.sample(self.landed_names, min(len(self.landed_names), 5)):
                    os.utime(self.root / name)
            case "expire" if self.snapshots():
                self.handle.expire(keep_last=2)
            case "backfill" if self.snapshots():
                self.handle.backfill(promote=True)
            case "rollback" if snapshots := self.snapshots():
                self.handle.rollback(
                    to=self.draw.choice([*sorted(self.seen_snapshots.intersection(snapshots[1:])), "beginning"])
                )
            case "branch" if snapshots := self.snapshots():
                self.branches += 1
                self.handle.fork(self.draw.choice(snapshots), f"b{self.branches}")
                self.handle.run(branch=f"b{self.branches}", publish=False)
                self.check(f"b{self.branches}")

    def snapshots(self) -> list[str]:
        """Those of main that are kept."""
        catalog = self.handle._catalog
        head = catalog.head().refs.get("main")
        return [] if head is None else [one.snapshot_id for one in catalog.whole_ancestry(head)][:6]

    def manifest(self, branch: str = "main") -> hr.types.Manifest:
        """The newest snapshot."""
        catalog = self.handle._catalog
        return catalog.manifest(catalog.head().refs[branch])

    def check(self, branch: str = "main") -> None:
        """Each file counts once, as far as the branch is."""
        rows = self.handle.read("current", at=branch).to_arrow().to_pylist()
        assert Counter({row["name"]: row["n"] for row in rows}) == Counter(self.landed_names)


@examples(80)
@given(st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 2), st.integers(0, 2**32))
def test_every_file_counts_once(layouts: tuple[str, str], seed: int) -> None:
    few = set_sizes(files_before_names=8, names_file_rows=4, names_looked_up=6)
    with few if MOST < 1_000 else nullcontext(), TemporaryDirectory() as folder:  # few are to it what a thousand are
        world = World(Path(folder), layouts, seed)
        for _ in range(world.draw.randint(4, 12)):
            step, files = world.draw.choice(STEPS), world.draw.randint(1, MOST // 4)
            note(f"{step} {files}")
            world.do(step, min(files, MOST - len(world.landed_names)))
        world.do("land and run", 1)
        world.check()
