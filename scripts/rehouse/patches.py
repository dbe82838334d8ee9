"""Patches and branches that were made before the plans, taken over to the checkout after them.

Both are trees: a commit of the time before, with a patch or without, gives a tree on which all plans are run.
"""

import subprocess
import tempfile
from pathlib import Path

from scripts.rehouse.checkout import BASES, Checkout
from scripts.rehouse.plan import RefusedPlanError, read_plan
from scripts.rehouse.run import run_plan


def run_plans(checkout: Checkout, files: list[Path], *, dry: bool = False, force: bool = False) -> None:
    """Runs plans one after the other, and prints what each came to."""
    for file in files:
        outcome = run_plan(checkout, read_plan(file), dry=dry, force=force)
        print(f"{file.stem}: {len(outcome.lines)} files of joined modules, {len(outcome.touched)} touched")
        if dry:
            print("\n".join(f"  {target}: {lines} lines" for target, lines in outcome.lines.items()))
        print("".join(f"  {remark}\n" for remark in dict.fromkeys(outcome.remarks)), end="")


def rehoused_tree(checkout: Checkout, commit: str, files: list[Path], patch: str | None = None) -> str:
    """The tree of ``commit`` after the plans. With a patch, which may be empty, it has packages alone, for speed."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Checkout(Path(folder).resolve() / "scratch")
        checkout.git("worktree", "add", "-q", "--detach", str(scratch.root), commit)
        try:
            if patch is not None:
                others = {name.partition("/")[0] for name in scratch.git("ls-files").split()} - {*BASES.values()}
                scratch.git("rm", "-rfq", *sorted(others - {"pyproject.toml"}))
            if patch:
                scratch.git("apply", "--index", "-", stdin=patch)
            run_plans(scratch, files)
            scratch.git("add", "-A")
            return scratch.git("write-tree").strip()
        finally:
            checkout.git("worktree", "remove", "--force", str(scratch.root))


def renew_patches(checkout: Checkout, before: str, files: list[Path]) -> list[Path]:
    """Makes again each patch of ``tests/additions`` that names a moved module, or no longer applies.

    A patch is applied to ``before``, the commit before the plans. The plans are run on that, and the result is compared
    with the plans without it.
    """
    moved = [module for file in files for module in read_plan(file).places]
    names = {*moved, *(module.replace(".", "/") for module in moved)}
    renewed: list[Path] = []
    without = ""
    for patch in sorted((checkout.root / "tests/additions").rglob("*.patch")):
        text = patch.read_text(encoding="utf-8")
        if any(name in text for name in names) or not _applies(checkout, text):
            without = without or rehoused_tree(checkout, before, files, "")
            after = rehoused_tree(checkout, before, files, text)
            patch.write_text(checkout.git("diff", "-U2", without, after), encoding="utf-8")
            renewed.append(patch)
    return renewed


def _applies(checkout: Checkout, patch: str) -> bool:
    """Whether a patch fits the files as they are."""
    command = ["git", "apply", "--check", "-"]
    return (
        subprocess.run(command, cwd=checkout.root, check=False, text=True, input=patch, capture_output=True).returncode
        == 0
    )


def transplant(checkout: Checkout, before: str, after: str, files: list[Path]) -> str:
    """Takes the branch over, commit by commit, from ``before`` the plans to the commit ``after`` them.

    The branch is rebased on ``before`` first. Its old head stays as ``NAME-before``. Gives the new head.
    """
    if checkout.git("status", "--porcelain", "--untracked-files=no"):
        raise RefusedPlanError("commit first")
    checkout.git("rebase", "-q", before)
    branch = checkout.git("branch", "--show-current").strip()
    checkout.git("branch", "-f", f"{branch}-before", "HEAD")
    parent = checkout.git("rev-parse", after).strip()
    for commit in checkout.git("rev-list", "--reverse", f"{before}..HEAD").split():
        tree = rehoused_tree(checkout, commit, files)
        message = checkout.git("log", "-1", "--format=%B", commit)
        parent = checkout.git("commit-tree", tree, "-p", parent, stdin=message).strip()
    checkout.git("reset", "-q", "--hard", parent)
    return parent


def main_folder() -> Path:
    """The root of the checkout in which this runs."""
    command = ["git", "rev-parse", "--show-toplevel"]
    return Path(subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip())
