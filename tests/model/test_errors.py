"""Errors that cross processes arrive as what they were."""

import pickle

import pytest

from headrace.errors import (
    BrokenObjectError,
    FileColumnsError,
    FixDataError,
    HeadraceError,
    LargeFileError,
    UnreadableFileError,
    VanishedFileError,
)


@pytest.mark.parametrize(
    "error",
    [
        FixDataError("wrong"),
        HeadraceError(),
        BrokenObjectError("s3://bucket/file is missing: restore it"),
        UnreadableFileError("landing/1.csv", "its header is not UTF-8"),
        FileColumnsError("landing/1.csv", "its header names column a 2 times"),
        LargeFileError("landing/1.csv", 3_000_000_000),
        VanishedFileError("landing/1.csv"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_pickled_as_it_is(error: HeadraceError) -> None:
    error.add_note("seen in share 3")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
    assert (copy.code, copy.__notes__) == (error.code, ["seen in share 3"])
