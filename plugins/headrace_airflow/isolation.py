"""Code of users in processes that cannot read Airflow's own secrets: tasks, their callbacks, DAG files being parsed.

Airflow runs such code in a fork of its own process, which has the secrets in its memory and environment. After
``install`` the fork starts over as a new program, without them; and it is confined before that: the kernel (Landlock)
refuses it the memory and the environment of all processes outside of what it starts itself. So a secret that reaches a
component by its environment alone stays there. It costs a task the time in which Python imports Airflow.

``docker/airflow_local_settings.py`` installs it; Airflow imports that before it does anything.
"""

import ctypes
import os
import pickle
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from importlib import import_module
from socket import socket
from types import CellType, CodeType, FunctionType
from typing import Any, NoReturn

from headrace.garbage import collect_seldom, without_collection

SECRETS = (
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    "AIRFLOW__CORE__SQL_ALCHEMY_CONN",
    "AIRFLOW__CORE__FERNET_KEY",
    "AIRFLOW__API__SECRET_KEY",
    "AIRFLOW__API_AUTH__JWT_SECRET",
    "AIRFLOW__API_AUTH__JWT_PRIVATE_KEY_PATH",
)
"""Beginnings of the variables that are Airflow's alone, whichever way they give their value (``_CMD``, ``_SECRET``)."""

_NO_NEW_PRIVILEGES = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_MAKE_BLOCK, _REFER = 1 << 11, 1 << 13
_OLDEST = 2
"""The first version of Landlock under which files can still be moved between folders."""

_STARTED_OVER = "_HEADRACE_ISOLATED"

Entry = Callable[[], None]


class NotConfinedError(Exception):
    """This kernel cannot keep a process from the secrets of others; the message says what to do."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def install() -> None:
    """From now on, code of users that this process starts is confined, and without ``SECRETS``."""
    if _STARTED_OVER not in os.environ:
        from airflow.sdk.execution_time import supervisor  # which imports settings, and with them what calls this

        supervisor._fork_main = _start_over


def available() -> bool:
    """Whether this kernel can confine a process."""
    return _version() >= _OLDEST


def confine() -> None:
    """Keep this process, and all that it starts, from the memory and the environment of any other. For good.

    Raises NotConfinedError.
    """
    if not available():
        raise NotConfinedError(
            "this kernel has no Landlock (Linux 5.19 or newer), or the engine of containers forbids it: code of users "
            "could read Airflow's secrets. Use such a kernel; or, if you trust that code, take PYTHONPATH out of the "
            "scheduler and the DAG processor in docker/compose.yaml"
        )
    # a domain needs a right that it takes away: that of making block devices, which no task has anyway
    ruleset = _Ruleset(_MAKE_BLOCK | _REFER)
    rules = _call(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    beneath = _PathBeneath(_REFER, root)
    _call(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(beneath), 0)
    if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    _call(_RESTRICT_SELF, rules, 0)
    os.close(root)
    os.close(rules)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` as code of users may see it."""
    return {name: value for name, value in environment.items() if not name.startswith(SECRETS)}


def main(log: int, entry: int) -> NoReturn:
    """What the new program does: what Airflow's fork would have done, with the sockets that it has left.

    ``log`` and ``entry`` are open files: where messages go, and what names the function to call.
    """
    with without_collection():
        from airflow.sdk.execution_time.supervisor import _fork_main

    collect_seldom()
    with os.fdopen(entry, "rb") as file:
        module, name, kept = pickle.load(file)  # noqa: S301 - what _start_over has written
    _fork_main(socket(fileno=0), socket(fileno=1), socket(fileno=2), log, _entry(module, name, kept))


def _start_over(requests: socket, child_stdout: socket, child_stderr: socket, log_fd: int, target: Entry) -> NoReturn:
    """In the fork: another program, confined and without secrets, with the same sockets."""
    for number, stream in enumerate((requests, child_stdout, child_stderr)):
        os.dup2(stream.fileno(), number)
    kept = [cell.cell_contents for cell in getattr(target, "__closure__", None) or ()]
    entry = os.memfd_create("entry", 0)
    with os.fdopen(os.dup(entry), "wb") as file:
        pickle.dump((target.__module__, target.__qualname__, kept), file)
    os.lseek(entry, 0, os.SEEK_SET)
    os.set_inheritable(log_fd, True)
    confine()
    code = f"from headrace_airflow.isolation import main; main({log_fd}, {entry})"
    os.execve(sys.executable, [sys.executable, "-c", code], {**without_secrets(os.environ), _STARTED_OVER: "1"})  # noqa: S606


def _entry(module: str, name: str, kept: Sequence[object]) -> Entry:
    """The function of that qualified name; one that stands in another function has ``kept`` as its variables."""
    outer, _, inner = name.partition(".<locals>.")
    outermost: Any = reduce(getattr, outer.split("."), import_module(module))
    if not inner:
        entry: Entry = outermost
        return entry
    (code,) = (
        constant
        for constant in outermost.__code__.co_consts
        if isinstance(constant, CodeType) and constant.co_name == inner
    )
    return FunctionType(code, outermost.__globals__, inner, None, tuple(map(CellType, kept)))


def _version() -> int:
    if platform.system() != "Linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def _call(number: int, *arguments: object) -> int:
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: system call {number}: {os.strerror(ctypes.get_errno())}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
