"""A scheme names the place of what opens its stores: the client is imported when a root is opened, and not before."""

import sys
from pathlib import Path

import pytest

from headrace.errors import NotInstalledError
from headrace.ext.stores import StoreScheme, open_store
from headrace.installed import BrokenEntryPointError
from tests.distributions import write_distribution

PROJECT = """
    [project]
    name = "acme-stores"
    version = "1.0"
    [project.entry-points."headrace.stores"]
    acme = "acme_scheme:SCHEME"
"""
SCHEME = """
from headrace.ext.stores import StoreScheme
SCHEME = StoreScheme("acme://bucket", "acme_store:AcmeStore", variables="ACME_")
"""
STORE = """
from headrace_snapshots.store.local import MemoryStore
class AcmeStore(MemoryStore):
    def __init__(self, uri):
        super().__init__(uri)
        self.uri = uri
NUMBER = 3
"""
MODULES = {
    "acme_scheme": SCHEME,
    "acme_store": STORE,
    "acme_raises": "raise KeyError('no quota')",
    "acme_without": "import acme_client",
}


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a package with these modules is installed."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    write_distribution(PROJECT, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("acme")
def test_the_place_of_a_store_is_imported_when_a_root_is_opened() -> None:
    with pytest.raises(Exception, match="memory://name or acme://bucket"):
        open_store("acmee://here")
    assert "acme_store" not in sys.modules
    store = open_store("acme://here")
    store.write("x", b"1")
    assert (store.uri, store.read("x"), type(store).__module__) == ("acme://here", b"1", "acme_store")


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("acme_absent:Store", "ModuleNotFoundError: No module named 'acme_absent'"),
        ("acme_store:Absent", "AttributeError: module 'acme_store' has no attribute 'Absent'"),
        ("acme_raises:Store", "KeyError: 'no quota'"),
        ("acme_without:Store", "ModuleNotFoundError: No module named 'acme_client'"),
        ("acme_store:NUMBER", "which is int: name what can be called"),
    ],
)
def test_a_place_that_cannot_be_used_is_named_without_secrets(place: str, message: str) -> None:
    scheme = StoreScheme("acme://bucket", place)
    with pytest.raises(BrokenEntryPointError) as error:
        scheme.open("acme://ann:hush@here")
    assert error.value.code == "config.entry_point"
    assert f"acme://...@here is opened by {place}, which " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize("place", ["acme_store", "acme_store:", ":Store", "acme store:Store", "acme_store.Store", ""])
def test_a_text_that_is_no_place_is_refused_where_it_is_written(place: str) -> None:
    with pytest.raises(BrokenEntryPointError, match="write it as 'module:Class'"):
        StoreScheme("acme://bucket", place)


def test_a_place_whose_extra_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minio", None)
    monkeypatch.delitem(sys.modules, "headrace_snapshots.store.s3", raising=False)
    with pytest.raises(NotInstalledError, match=r"s3://sales/x needs minio, .*pip install 'headrace\[s3\]'"):
        open_store("s3://sales/x")


def test_schemes_with_one_place_are_equal() -> None:
    one, same, other = (StoreScheme("acme://x", place) for place in ("acme:A", "acme:A", "acme:B"))
    assert one == same != other
    assert hash(one) == hash(same)
