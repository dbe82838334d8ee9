"""Imports of the audit that wait, and imports that the garbage collector does not interrupt."""

import gc

import pytest

from headrace.this_process import without_collection


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_rests_inside_and_is_then_as_it_was(is_enabled: bool) -> None:
    assert gc.isenabled()
    try:
        if not is_enabled:
            gc.disable()
        with pytest.raises(ZeroDivisionError), without_collection():
            assert not gc.isenabled()
            _ = 1 / 0
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()
