"""Texts for people as pages say them: where one names a command of the shell whose work a page does, it names that.

Errors, warnings and explanations are written once, for all who read them. A command that no page does stays.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from headrace.runs.reporting.results import redacted

_NAME: Final = r"[A-Za-z]\w*"
_SNAPSHOT: Final = "(?P<snapshot>[0-9a-f]{16})"

_ON_PAGES: Final[Mapping[str, str]] = {
    rf"read (?:{_NAME} )?--view (?:late|rejected)": "the tab Records",
    rf"log {_NAME}": "the tab History",
    "plot": "the tab Epochs",
    rf"replay-(?:late|rejected)(?: {_NAME})?": "Land again… in the tab Records",
    rf"release(?: {_NAME}(?:\.{_NAME})?(?: \S+)?)?(?: --message WHY)?": "Release…",
    rf"promote {_NAME} [\w.-]+(?: --patch)?": "Promote… in the tab Overview",
    rf"drop {_NAME} [\w./-]+": "Drop… in the tab Overview",
    rf"rollback {_NAME} --to {_SNAPSHOT}": "Roll back to here… at {snapshot} in the tab History",
    rf"recover {_NAME} {_SNAPSHOT}": "Recover from here… at {snapshot} in the tab History",
    rf"run(?: {_NAME})?": "Process now in the tab Overview",
    rf"backfill {_NAME}(?: --promote)?": "the DAG backfill",
    rf"backfill {_NAME}\.(?P<output>{_NAME})(?: --promote)?": "the DAG backfill of output {output}",
}
"""Commands without the word that all begin with, and what pages have instead of each."""

_BEGIN: Final = "headrace "
_COMMANDS: Final = [
    (re.compile(rf"(?:(?P<tick>`)|(?<=\()){_BEGIN}{command}(?(tick)`(?: \(or the backfill DAG\))?|(?=\)))"), words)
    for command, words in _ON_PAGES.items()
]


def told(text: str) -> str:
    """``text``, which may quote secrets, as a page says it."""
    text = redacted(text)
    for command, words in _COMMANDS if _BEGIN in text else ():
        text = command.sub(partial(_in_words, words), text)
    return text


def _in_words(words: str, command: re.Match[str]) -> str:
    return words.format(**command.groupdict())


def told_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a pipeline as a JSON value: its texts as a page says them."""
    outputs = [{**one, "parked": one["parked"] and _told_of_parked(one["parked"])} for one in summary["outputs"]]
    return {**summary, "run": summary["run"] and told_of_run(summary["run"]), "outputs": outputs}


def _told_of_parked(parked: Mapping[str, Any]) -> dict[str, Any]:
    return {**parked, "message": told(parked["message"])}


def told_of_run(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a run, or the line that a summary has of it, as a JSON value: its texts as a page says them."""
    return {**result, "error": _told_of_error(result["error"]), "warnings": [*map(told, result["warnings"])]}


def _told_of_error(error: Mapping[str, Any] | str | None) -> Mapping[str, Any] | str | None:
    if isinstance(error, Mapping):
        return {**error, "message": told(error["message"])}
    return error if error is None else told(error)
