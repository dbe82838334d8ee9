"""Random histories of outputs that read each other, and of a pipeline that reads one: refused audits, rollbacks to
whatever there was, renamings, outputs that fail or are left out, releases, expiries.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import col
from headrace.audit.store import AuditFailedError
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.publishing.publish import NothingToReleaseError, UpstreamUnpublishedError
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.errors import MissingSnapshotError, RefusedError
from headrace_snapshots.format.output_view import output_names
from headrace_snapshots.fsck import fsck
from headrace_snapshots.names import published_of
from headrace_snapshots.protocol.moves import Kind
from tests.process.fragile import Fragile

BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
MOST = 40
"""What the sum of an hour may be, at most."""

EARLY: dict[str, Any] = {"when": hr.on_update(), "how": hr.retracting(None)}
NAMES = {"hours": ("hours",), "days": ("days", "daily", "by_day"), "number": ("number", "n", "count")}
NAMES |= {"lines": ("lines", "sold"), "dearest": ("dearest", "most"), "matched": ("matched", "met")}
"""The outputs, and what each may be called."""

ACTIONS = (
    "good",
    "good",
    "bad",
    "mend_input",
    "several",
    "run_without",
    "breaks",
    "rename_outputs",
    "roll_back",
    "roll_back",
    "recover_snapshot",
)
ACTIONS = (*ACTIONS, "release_main", "expire_snapshots", "read", "read")


class History:
    """One root, with a pipeline and its reader. ``may_see``: by output what its readers could see, or what
    a person has released.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.choice = folder, random.Random(seed)
        (folder / "landing/o").mkdir(parents=True)
        self.works = folder / "works"
        self.works.touch()
        self.values: list[tuple[int, int]] = []
        self.names_now = {output: names[0] for output, names in NAMES.items()}
        self.may_see: dict[str, set[str]] = defaultdict(set)
        self.was_released = False
        self.root = hr.open(folder.as_uri(), create=True)
        self._there_now: tuple[str, ...] = ()

    # What there is

    def pipeline(self, ref: str | None = None) -> hr.Pipeline:
        """Its outputs say what they are called in the snapshot ``ref`` (None: main), where that is another name."""
        self._there_now = self._output_names_at(ref)
        source = hr.json("landing/o", {"hour": int, "price": int, "at": datetime}, max_files=1)
        limit = hr.expect("column_values_to_be_between", column="sales", max_value=MOST)
        fragile = col("sales").combine(Fragile(str(self.works), least=-(2**62)))
        own = {
            "hours": hr.Output(
                key="hour", what={"sales": col("price").sum()}, where=hr.FixedWindows("1h"), expectations=[limit],
                **self._former("hours"), **EARLY,
            ),
            "days": hr.Output(
                of=self.names_now["hours"], key=None, what={"sales": fragile}, where=hr.CalendarWindows("day"),
                **self._former("days"), **EARLY,
            ),
            "number": hr.Output(
                key=None, what={"n": hr.count()}, where=hr.FixedWindows("1h"), **self._former("number"), **EARLY
            ),
            "lines": hr.Rows(["hour", "price"], **self._former("lines")),
            "dearest": hr.Rows(
                ["price"], of=self.names_now["lines"], key="hour", take=hr.top(1, by="price"), **self._former("dearest")
            ),
            "matched": hr.Rows(
                ["hour", "price", "sales"], of=self.names_now["lines"], **self._former("matched"),
                join=[hr.same_window(self.names_now["hours"], "hour", window=hr.FixedWindows("1h"), lateness=None)],
            ),
        }  # fmt: skip
        outputs = {self.names_now[output]: one for output, one in own.items()}
        return hr.Pipeline("p", source.event_time("at", bound="1h"), outputs=outputs, executor="local")

    def _former(self, output: str) -> dict[str, Any]:
        """Says what main calls an output, if that is another name."""
        former = next((name for name in NAMES[output] if name in self._there_now), None)
        return {} if former in {None, self.names_now[output]} else {"formerly": str(former)}

    def _output_names_at(self, ref: str | None = None) -> tuple[str, ...]:
        if "p" not in self.root:
            return ()
        catalog = self.root["p"].catalog
        snapshot = ref or catalog.head().refs.get("main")
        return () if snapshot is None else output_names(catalog.manifest(snapshot))

    def reader(self) -> hr.Pipeline:
        """It sums what readers see of hours."""
        return hr.Pipeline(
            "reader", hr.published("p.hours", {"hour": int, "sales": int}), key=None,
            what={"total": col("sales").sum()}, where=hr.CalendarWindows("month"), executor="local", **EARLY,
        )  # fmt: skip

    @property
    def handle(self) -> Any:
        return self.root[self.pipeline()]

    def seen_by_output(self) -> dict[str, str]:
        """What readers see of each output."""
        refs = self.handle.catalog.head().refs
        return {_output(name): snapshot for name, snapshot in published_of(refs).items()}

    # What is done

    def land(self, price: int) -> None:
        """A record of the hour that was landed first, or of another one."""
        number = len(self.values)
        hour = self.choice.randrange(3)
        self.values.append((hour, price))
        record = {"hour": hour, "price": price, "at": (BEGIN + timedelta(hours=hour, seconds=number)).isoformat()}
        (self.folder / f"landing/o/{number:04}.json").write_text(json.dumps(record) + "\n")

    def run(self, *omitted_names: str) -> None:
        with suppress(AuditFailedError, UpstreamUnpublishedError):
            self.handle.run(without=list(omitted_names))
        self._note()

    def _note(self) -> None:
        """Note what readers may see now."""
        catalog = self.handle.catalog
        newest = next(iter(catalog.entries()))
        assert newest.kind is not Kind.ROLLBACK
        for output, snapshot in self.seen_by_output().items():
            self.may_see[output].add(snapshot)

    def good(self) -> None:
        self.land(self.choice.randrange(1, 3))
        self.run()

    def bad(self) -> None:
        self.land(1000)
        self.run()

    def mend_input(self) -> None:
        """Take back what is too much, each in the hour where it is."""
        sums = self.sums()
        for hour in [hour for hour, value in sums.items() if value > MOST]:
            number = len(self.values)
            self.values.append((hour, -sums[hour]))
            record = {"hour": hour, "price": -sums[hour], "at": (BEGIN + timedelta(hours=hour)).isoformat()}
            (self.folder / f"landing/o/{number:04}.json").write_text(json.dumps(record) + "\n")
        self.run()

    def several(self) -> None:
        """Epochs of one run: what is too much after some of them need not be so after the last."""
        self.land(1000)
        self.land(1)
        self.mend_input()

    def run_without(self) -> None:
        self.land(1)
        self.run(self.names_now[self.choice.choice(("hours", "days", "lines", "dearest", "matched"))])

    def breaks(self) -> None:
        """Days fail for a run or two."""
        self.works.unlink(missing_ok=True)
        self.good()
        if self.choice.random() < 0.5:
            self.rename_outputs()
        self.works.touch()

    def rename_outputs(self) -> None:
        output = self.choice.choice([*NAMES])
        self.names_now[output] = self.choice.choice(NAMES[output])
        self.good()

    def roll_back(self, *, recovers: bool = False) -> None:
        """Main goes to a snapshot of its line, and readers to what they could see then; or nobody goes anywhere."""
        catalog = self.handle.catalog
        main = catalog.head().refs.get("main")
        line = [] if main is None else [link.snapshot_id for link in catalog.lineage(main)]
        if len(line) < 2:
            return
        target = self.choice.choice(line[1:6])
        refs_before, expected = catalog.head().refs, self.expected(target, line)
        try:
            if recovers:
                foreseen = self.handle.recovery_cut(target).moves[0].given_up
                self.root[self.pipeline(target)].recover(target, publish=False)
            else:
                foreseen = self.handle.rollback(to=target, dry_run=True)
                self.handle.rollback(to=target)
        except (RefusedError, MissingSnapshotError) as error:
            assert catalog.head().refs == refs_before, "nothing has moved"
            assert None in expected.values() or "expired" in str(error), (error, expected)
            if "would see nothing" in str(error):
                assert f"`headrace release p.{_named_output(error)} {target}`" in str(error)
            return
        assert foreseen is not None
        assert {
            _output(n): snapshot for n, snapshot in published_of(self._refs_after(foreseen.moves, refs_before)).items()
        } == expected
        assert self.seen_by_output() == expected
        assert {*published_of(catalog.head().refs)} <= {*self._output_names_at()} or recovers

    @staticmethod
    def _refs_after(moves: Any, old_refs: Any) -> dict[str, str]:
        refs = {**old_refs, **{ref: new_snapshot for ref, (_, new_snapshot) in moves.items()}}
        return {ref: snapshot for ref, snapshot in refs.items() if snapshot is not None}

    def expected(self, target: str, line: list[str]) -> dict[str, str | None]:
        """What readers of each output see once main is at ``target``: what they see, if that is not newer; else the
        newest at or before it that they could; None: nothing that is kept.
        """
        older = line[line.index(target) :]
        had = {_output(name) for name in output_names(self.handle.catalog.manifest(target))}
        return {
            output: snapshot if snapshot in older else next((one for one in older if one in self.may_see[output]), None)
            for output, snapshot in self.seen_by_output().items()
            if output in had
        }

    def recover_snapshot(self) -> None:
        self.roll_back(recovers=True)

    def release_main(self) -> None:
        """A person lets readers see main, though it may be too much."""
        catalog = self.handle.catalog
        if (main := catalog.head().refs.get("main")) is None:
            return
        parked_outputs = {*StoredProgress.from_manifest(catalog.manifest(main)).parked}
        if parked_outputs:
            return
        try:
            self.handle.release("main", message="ada: it is so")
        except (NothingToReleaseError, RefusedError):
            return
        self.was_released = True
        self._note()

    def expire_snapshots(self) -> None:
        for _ in range(2):
            self.handle.expire(keep_last=self.choice.randrange(1, 4))

    def read(self) -> None:
        """The reader reads on; what it reads may be called otherwise now, or have nothing that readers may see."""
        if "hours" in self.seen_by_output():
            self.root[self.reader()].run()

    # What holds

    def sums(self) -> dict[int, int]:
        """The truth: what was landed, by hour."""
        sums: dict[int, int] = defaultdict(int)
        for hour, price in self.values:
            sums[hour] += price
        return dict(sums)

    def check(self) -> None:
        """After each step: readers see nothing that they may not, and no sum that no audit passes."""
        for output, snapshot in self.seen_by_output().items():
            assert snapshot in self.may_see[output], (output, snapshot)
        if "hours" in self.seen_by_output() and not self.was_released:
            name = next(name for name in published_of(self.handle.catalog.head().refs) if _output(name) == "hours")
            rows = self.root["p"][name].current().to_arrow().to_pylist()
            assert all(row["sales"] <= MOST for row in rows), rows
        self._check_rows()
        check_catalog(self.handle.catalog.store, "p")

    def _check_rows(self) -> None:
        """Where readers see rows and what is taken of them in one snapshot, these belong together."""
        names = published_of(self.handle.catalog.head().refs)
        snapshot_of_output = {_output(name): (name, snapshot) for name, snapshot in names.items()}
        if (
            "lines" not in snapshot_of_output
            or snapshot_of_output["lines"][1:] != snapshot_of_output.get("dearest", ())[1:]
        ):
            return
        lines, dearest = (
            self.root["p"][snapshot_of_output[output][0]].current().to_json() for output in ("lines", "dearest")
        )
        if (
            snapshot_of_output["lines"][1:]
            == snapshot_of_output.get("hours", ())[1:]
            == snapshot_of_output.get("matched", ())[1:]
        ):
            hours, matches = (
                self.root["p"][snapshot_of_output[output][0]].current().to_json() for output in ("hours", "matched")
            )
            sales = {row["hour"]: row["sales"] for row in hours}
            assert _triples(matches) == sorted((row["hour"], row["price"], sales[row["hour"]]) for row in lines)
        assert {row["hour"]: row["price"] for row in dearest} == _largest((row["hour"], row["price"]) for row in lines)

    def finish(self) -> None:
        """In the end all have read everything, and readers see it."""
        self.works.touch()
        self.mend_input()
        self.good()
        self.mend_input()
        catalog = self.handle.catalog
        main = catalog.head().refs["main"]
        assert StoredProgress.from_manifest(catalog.manifest(main)).parked == {}
        assert self.seen_by_output() == dict.fromkeys(NAMES, main)
        hours, days, number, lines, dearest, matches = (
            self.handle[self.names_now[output]].current().to_arrow().to_pylist() for output in NAMES
        )
        assert {row["hour"]: row["sales"] for row in hours} == self.sums()
        assert [row["sales"] for row in days] == [sum(self.sums().values())]
        assert sum(row["n"] for row in number) == len(self.values)
        assert sorted((row["hour"], row["price"]) for row in lines) == sorted(self.values)
        assert {row["hour"]: row["price"] for row in dearest} == _largest(self.values)
        assert _triples(matches) == sorted((hour, price, self.sums()[hour]) for hour, price in self.values)
        self.read()
        (total,) = self.root["reader"].current(at="main").to_arrow().to_pylist()
        assert total["total"] == sum(self.sums().values())
        for name in ("p", "reader"):
            assert fsck(self.root[name].catalog, deep=True).damage == ()


def _triples(rows: Iterable[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return sorted((row["hour"], row["price"], row["sales"]) for row in rows)


def _largest(values: Iterable[tuple[int, int]]) -> dict[int, int]:
    largest: dict[int, int] = {}
    for hour, price in values:
        largest[hour] = max(price, largest.get(hour, price))
    return largest


def _output(name: str) -> str:
    return next(output for output, names in NAMES.items() if name in names)


def _named_output(error: Exception) -> str:
    """The first output that a refusal names."""
    return str(error).partition("readers of ")[2].split()[0]
