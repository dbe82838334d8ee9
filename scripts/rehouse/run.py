"""Runs a plan on a checkout: looks for what stands against it, then moves, joins, rewrites and formats."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from scripts.rehouse.checkout import BASES, Checkout
from scripts.rehouse.circles import predicted_circle
from scripts.rehouse.imports import Rewriting
from scripts.rehouse.joining import Joining, Renamed
from scripts.rehouse.plan import Join, Plan, RefusedPlanError
from scripts.rehouse.texts import Texts

RUFF = str(Path(sys.executable).with_name("ruff"))


@dataclass
class Outcome:
    """What a run of a plan came to: the lines of each target, files that changed, and what a person must look at."""

    lines: dict[str, int]
    touched: list[Path] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def run_plan(checkout: Checkout, plan: Plan, *, dry: bool = False, force: bool = False) -> Outcome:
    """Raises RefusedPlanError, before anything is written, for a circle or a collision; not with ``force``."""
    plan, remarks = _present(checkout, plan)
    renamed: Renamed = {}
    joinings = [Joining(join, checkout, plan.places, renamed) for join in plan.joins]
    texts = {joining.join.target: joining.text() for joining in joinings}
    problems = [problem for joining in joinings for problem in joining.problems]
    if circle := predicted_circle(checkout, plan.places):
        problems.append("a circle: " + " -> ".join(circle))
    if problems and not dry and not force:
        raise RefusedPlanError("\n".join(dict.fromkeys(problems)))
    outcome = Outcome({target: len(text.splitlines()) for target, text in texts.items()}, remarks=remarks + problems)
    if dry or not plan.joins:
        return outcome
    written = [_put(checkout, join, texts[join.target], outcome) for join in plan.joins]
    _rewrite_files(checkout, plan, renamed, set(written), outcome)
    _apply_fixes(checkout, plan, outcome)
    contracts = checkout.root / "pyproject.toml"
    if contracts.exists():
        contracts.write_text(_without_repeats(contracts.read_text(encoding="utf-8")), encoding="utf-8")
    _remove_empty_rooms(checkout, [checkout.path_of(module).parent for module in plan.places])
    _format(checkout, outcome)
    return outcome


def _present(checkout: Checkout, plan: Plan) -> tuple[Plan, list[str]]:
    """The plan without modules that are not there (any more), and what was left out."""
    joins, remarks = [], []
    for join in plan.joins:
        modules = tuple(module for module in join.modules if checkout.path_of(module).exists())
        remarks += [f"not there: {module}" for module in join.modules if module not in modules]
        if modules and modules != (join.target,):
            joins.append(replace(join, modules=modules))
    return replace(plan, joins=tuple(joins)), remarks


def _put(checkout: Checkout, join: Join, text: str, outcome: Outcome) -> Path:
    """Writes a joined module. Git keeps the history of the target, or of the first module."""
    target = checkout.root / BASES[join.target.split(".")[0]] / (join.target.replace(".", "/") + ".py")
    target.parent.mkdir(parents=True, exist_ok=True)
    room = target.parent
    while room.name not in BASES.values() and not (room / "__init__.py").exists():
        (room / "__init__.py").write_text('"""TODO"""\n', encoding="utf-8")
        outcome.remarks.append(f"say what the room is for: {room.relative_to(checkout.root)}/__init__.py")
        outcome.touched.append(room / "__init__.py")
        room = room.parent
    files = [checkout.path_of(module) for module in join.modules]
    kept = target if target in files else files[0]
    if kept != target:
        checkout.git("mv", str(kept), str(target))
    for file in files:
        if file not in (target, kept):
            checkout.git("rm", "-q", "--cached", str(file))
            file.unlink()
    target.write_text(text, encoding="utf-8")
    outcome.touched.append(target)
    return target


def _rewrite_files(checkout: Checkout, plan: Plan, renamed: Renamed, joined: set[Path], outcome: Outcome) -> None:
    """Imports, strings and paths follow in every file."""
    texts = Texts(plan.places)
    for file in dict.fromkeys([*checkout.text_files(), *joined]):
        before = text = file.read_text(encoding="utf-8")
        path = file.relative_to(checkout.root)
        if file.suffix in (".py", ".pyi") and texts.names(text):
            rewriting = Rewriting(str(path), plan.places, renamed)
            text = rewriting.rewrite(text, file in joined)
            outcome.remarks += rewriting.problems
        text = texts.replace(text, path)
        if text != before:
            file.write_text(text, encoding="utf-8")
            outcome.touched.append(file)


def _without_repeats(text: str) -> str:
    """Contracts of import-linter in which two modules have become one name it once, where it was first."""

    def once(names_list: re.Match[str]) -> str:
        seen: set[str] = set()
        lines = []
        for line in names_list.group(2).split("\n"):
            groups = []
            for group in re.findall(r'"[^"]*"', line):
                names = [name for name in dict.fromkeys(group.strip('"').split(" | ")) if name not in seen]
                seen.update(names)
                groups += [f'"{" | ".join(names)}"'] if names else []
            rest = re.sub(r'"[^"]*",?\s*', "", line).strip()
            if groups or rest or not line.strip():
                indent = line[: len(line) - len(line.lstrip())]
                end = "," if line.rstrip().endswith(",") else ""
                lines.append(indent + ", ".join(groups) + end + (f" {rest}" if rest else ""))
        return names_list.group(1) + "\n".join(lines) + "]"

    lists = re.compile(r"^((?:source_modules|forbidden_modules|layers|modules) = \[)([^\]]*)\]", re.MULTILINE)
    begin = text.find("[tool.importlinter]")
    return text if begin < 0 else text[:begin] + lists.sub(once, text[begin:])


def _apply_fixes(checkout: Checkout, plan: Plan, outcome: Outcome) -> None:
    """Replaces what the plan says beside its joins."""
    for fix in plan.fixes:
        file = checkout.root / fix.path
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        if fix.old not in text:
            outcome.remarks.append(f"nothing to fix in {fix.path}: {fix.old!r}")
            continue
        file.write_text(text.replace(fix.old, fix.new), encoding="utf-8")
        outcome.touched.append(file)


def _remove_empty_rooms(checkout: Checkout, rooms: list[Path]) -> None:
    """Folders go in which only a docstring is left."""
    for start in dict.fromkeys(rooms):
        room = start
        while room.exists() and room.name not in BASES.values():
            rest = [file for file in room.iterdir() if file.name != "__pycache__"]
            init = room / "__init__.py"
            if rest and (rest != [init] or len(init.read_text(encoding="utf-8").splitlines()) > 3):
                break
            if rest:
                checkout.git("rm", "-q", "-f", str(init))
            if room.exists():
                shutil.rmtree(room)
            room = room.parent


def _format(checkout: Checkout, outcome: Outcome) -> None:
    """Imports are sorted, and those that nothing uses go."""
    files = [str(file) for file in dict.fromkeys(outcome.touched) if file.exists() and file.suffix in (".py", ".pyi")]
    if files:
        fixing = [RUFF, "check", "-q", "--select", "I,F401,F811", "--fix", *files]
        subprocess.run(fixing, cwd=checkout.root, check=False)  # what is left is named by make check
        subprocess.run([RUFF, "format", "-q", *files], cwd=checkout.root, check=True)
    checkout.git("add", "-A")
