"""Readers under other roots: seen by what they hold, or because their root is named; and what is said where neither is
so.
"""

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import MissingRootError, ReaderRootsError, ReadersCannotFollowError
from tests.lineage.test_lineage import chain_in
from tests.process.chains import Chain
from tests.process.test_published import line


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """The first pipeline in one root, read by the second in another, which has read what may be given up."""
    monkeypatch.delenv("HEADRACE_READER_ROOTS", raising=False)
    monkeypatch.delenv("HEADRACE_ROOTS", raising=False)
    made_chain = chain_in(tmp_path, roots=3)
    for _ in range(2):
        made_chain.land()
        for handle in made_chain.handles[:2]:
            handle.run(files_per_epoch=100)
    return made_chain


def moving(chain: Chain, **options: Any) -> list[str]:
    """The pipelines that would go back with the first."""
    first = chain.handles[0]
    cut = first.recovery_cut(line(first)[1], **options)
    return [move.pipeline.name for move in cut.moves if move.given_up is not None]


def test_a_reader_without_a_hold_is_found_where_its_root_is_named(
    chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, root = chain.handles[0], chain.folders[1].as_uri()
    assert moving(chain) == ["first", "second"], "by its hold"
    first.drop_reader("second")
    assert moving(chain) == ["first"]
    (limit,) = first.recovery_cut(line(first)[1]).searched.limits
    assert root not in limit
    assert "cannot put its hold is not seen" in limit
    assert moving(chain, reader_roots=[root, chain.folders[0].as_uri()]) == ["first", "second"]
    with pytest.raises(MissingRootError):
        moving(chain, reader_roots=[(tmp_path / "typo").as_uri()])
    with monkeypatch.context() as patch:
        patch.setenv("HEADRACE_READER_ROOTS", f"{chain.folders[2].as_uri()} {root} {(tmp_path / 'gone').as_uri()}")
        assert moving(chain) == ["first", "second"]
        limits = first.recovery_cut(line(first)[1]).searched.limits
        assert root in limits[0]
        assert "not looked for under" in limits[1]
        assert "gone does not exist" in limits[1]
        deployment = hr.open(chain.folders[0].as_uri())
        assert next(row["pipeline"] for row in deployment.lineage().rows()).endswith("/second")
        assert [one.reader.name for one in deployment.dependents("first", "main").readers] == ["second"]
    served_path = tmp_path / "roots.toml"
    monkeypatch.setenv("HEADRACE_ROOTS", str(served_path))
    served_path.write_text(f'[[root]]\nname = "sales"\nuri = "{root}"\npipelines = ["sales"]\n')
    assert moving(chain) == ["first", "second"]
    served_path.write_text(f'[[root]]\nname = "sales"\nuri = "{root}"\nstore = "sales_store"\n')
    assert moving(chain) == ["first"], "its keys are Airflow's"
    assert "a way of its own" in first.recovery_cut(line(first)[1]).searched.limits[1]
    served_path.write_text("[[root]\n")
    with pytest.raises(ReaderRootsError, match=r"roots\.toml.*cannot be read"):
        moving(chain)


def test_a_reader_that_holds_something_and_cannot_be_looked_at_stops_a_recovery(chain: Chain) -> None:
    first, target = chain.handles[0], line(chain.handles[0])[1]
    head = first.catalog.head().refs["main"]
    chain.folders[1].rename(chain.folders[1].with_name("elsewhere"))
    deployment = hr.open(chain.folders[0].as_uri())
    (hidden_row,) = [row for row in deployment.lineage().rows() if row["reads"] is not None]
    assert hidden_row["reads"] == "first"
    assert "seen from here" in hidden_row["lag"]
    with pytest.raises(ReadersCannotFollowError, match=r"second cannot follow: nothing of it is there.*has moved"):
        first.recover(target, with_readers=True)
    assert first.catalog.head().refs["main"] == head
    left = first.recovery_cut(target, leave=["second"])
    assert [move.in_words for move in left.moves][1].startswith("is left where it is")
    result = first.recover(target, with_readers=True, leave=["second"])
    assert any(warning.startswith("readers were looked for under") for warning in result.warnings)
