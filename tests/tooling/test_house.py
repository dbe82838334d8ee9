"""The rules of ``scripts/house``: each finds what breaks it, and says where."""

from pathlib import Path

import pytest

from scripts.house import broken_rules
from scripts.sentences import MOST_CLUMSY

ROOM = Path("jobs/headrace/room")


@pytest.mark.parametrize(
    "files, message",
    [
        ({f"m{number}.py": "" for number in range(26)}, "jobs/headrace/room: 26 files"),
        (
            {"a.py": "class Part:\n    pass\n", "b.py": "class Part:\n    pass\n"},
            "jobs/headrace/room/a.py:1, jobs/headrace/room/b.py:1: class Part means 2 things",
        ),
        (
            {"a.py": '"""What a is."""\n\ndef f():\n    """That of a."""\n'},
            "jobs/headrace/room/a.py:3: a docstring begins",
        ),
        ({"a.py": '"""It is a module."""\n'}, "jobs/headrace/room/a.py:1: a docstring begins"),
        (
            {"a.py": "def f(rows):\n    return [each for each in rows]\n"},
            "jobs/headrace/room/a.py:2: 'each' says nothing",
        ),
        ({"a.py": "f = lambda told: told\n"}, "jobs/headrace/room/a.py:1: 'told' says nothing"),
        ({"a.py": '\nraise ValueError(f"decide {1} anew")\n'}, "jobs/headrace/room/a.py:2: 'anew' (write: again)"),
        ({"../../../docs/a.md": f"{'word ' * 46}.\n"}, "docs/a.md:1: a sentence of 47 words"),
        (
            {"a.py": f'"""What a is.{" Of that." * (MOST_CLUMSY + 1)}"""\n'},
            f"{MOST_CLUMSY + 1} sentences of docstrings are clumsy",
        ),
        ({"a.py": f'SAID = ["{"word " * 26}"]\n'}, "1 sentences of messages have more than 25 words"),
        ({"../../../docs/a.md": "# A\n\n* Whoever\n  reads.\n"}, "docs/a.md:3: 'Whoever' (write: name the reader"),
        ({"../../../docs/a.md": "| a |\n|---|\n| the names of now |\n"}, "docs/a.md:3: 'of now'"),
        (
            {"../../../docs/a.md": "```python\nfrom headrace.sinks.open_sink import Held\n```\n"},
            "docs/a.md:2: headrace.sinks.open_sink is not public",
        ),
        (
            {"../../../docs/a.md": "A `headrace.room.b.Part` is there.\n", "b.py": ""},
            "docs/a.md:1: headrace.room.b.Part is",
        ),
        ({"../../../docs/a.md": "```python\nimport headrace.room\n```\n"}, "docs/a.md:2: headrace.room is not public"),
        (
            {"../../../docs/a.md": "```python\nfrom headrace import col, room\n```\n"},
            "docs/a.md:2: headrace.room is not public",
        ),
        (
            {"../../../examples/a.py": "def f():\n    from headrace_snapshots.store import open_store\n"},
            "examples/a.py:2: headrace_snapshots.store is not public",
        ),
        (
            {"../../../tests/additions/a.py": 'CODE = """\nfrom headrace.runs import process\n"""\n'},
            "tests/additions/a.py:2: headrace.runs is not public",
        ),
    ],
)
def test_what_breaks_a_rule_is_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    (tmp_path / ROOM).mkdir(parents=True)
    for folder in ("docs", "examples", "tests/additions"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / ROOM / name).write_text(text)
    (problem,) = broken_rules(tmp_path)
    assert problem.startswith(message)


def test_what_keeps_the_rules_is_not_named(tmp_path: Path) -> None:
    oracle = tmp_path / "lab/headrace_lab/reference"
    for folder in (tmp_path / ROOM, oracle):
        folder.mkdir(parents=True)
        (folder / "node.py").write_text('class Node:\n    """As-of joins have one."""\n')
    for number in range(14):
        (tmp_path / ROOM / f"m{number}.py").write_text("class _Part:\n    said: str\n")
    (tmp_path / ROOM / "__init__.py").write_text(f"QUERY = 'select {'a, ' * 50}'\n")
    (tmp_path / "README.md").write_text(f"# A\n\n```text\nanew\n```\n\n`of now`: {'word ' * 40}; {'word ' * 40}.\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text(
        "The group `headrace.room` and `headrace.epochs`.\n```python\nimport headrace as hr\nfrom headrace import col\n"
        "from headrace.ext.sinks import Sink\nfrom headrace.testing import run\n```\n"
    )
    assert broken_rules(tmp_path) == []
