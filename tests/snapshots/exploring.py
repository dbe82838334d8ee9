"""All interleavings of a few programs over one store, with its faults: each state that they can reach, once.

A program is plain code over a store. It is run with the answers that it had so far, up to the next thing that it asks;
so a state is what is stored, what each program was answered, and puts under way. There the program stands still, and
the first further answer makes it go on. For any other answer it is run again from its beginning.
Two ways to one state go on alike, so they are followed once. What is equal is one object, so that states are compared
and hashed quickly.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from greenlet import getcurrent, greenlet

from headrace.ext.stores import RequestCounts
from headrace_snapshots.store import ObjectInfo, ObjectStore, StoreUnavailableError, UnknownOutcomeError
from headrace_snapshots.store.local import MemoryStore

Objects = frozenset[tuple[str, bytes]]
"""What is stored: paths and contents."""

_READS = frozenset({"get", "stat", "list"})
"""Kinds of requests that change nothing."""
_MOST_WAITING = 10_000
"""Programs that stand still: each keeps its stack."""

Program = Callable[[ObjectStore, Callable[[Hashable], None]], None]
"""Works with a store, and says what it has come to."""


@dataclass(frozen=True)
class Request:
    """One call of a store."""

    kind: str
    path: str
    data: bytes = b""
    start_after: str = ""


@dataclass(frozen=True)
class Answer:
    """What came of a request: a value, or a class of error."""

    value: Hashable = None
    error: type[Exception] | None = None


@dataclass(frozen=True)
class ProgramState:
    """How far a program is: what it said, and what it asks next; None: it has ended."""

    said: tuple[Hashable, ...]
    next: Request | None


class AnswerChain:
    """What a program was answered so far. The same answers are the same object."""

    def __init__(self, answers: tuple[Answer, ...] = (), shorter: "AnswerChain | None" = None) -> None:
        self.answers = answers
        self.shorter = shorter
        """All but the last."""
        self._longer: dict[Answer, AnswerChain] = {}

    def and_then(self, answer: Answer) -> "AnswerChain":
        """These, and one more."""
        if answer not in self._longer:
            self._longer[answer] = AnswerChain((*self.answers, answer), self)
        return self._longer[answer]


class State(NamedTuple):
    """``answered``: each program. ``under_way``: puts whose answers were lost, which may land at any time."""

    objects: Objects
    answered: tuple[AnswerChain, ...]
    faults: int
    under_way: frozenset[Request] = frozenset()


@dataclass
class _ReplayStore:
    """A store that knows its first answers. For others the program stands still until whoever runs it gives one."""

    answers: tuple[Answer, ...]
    uri: str = "memory://explored"
    requests: RequestCounts = field(default_factory=RequestCounts)
    given: int = 0

    def read(self, path: str) -> bytes:
        return self._tell(Request("get", path))

    def stat(self, path: str) -> ObjectInfo:
        return self._tell(Request("stat", path))

    def read_same(self, info: ObjectInfo) -> bytes:
        return self.read(info.path)

    def digested(self, path: str) -> None:
        return None

    def write(self, path: str, data: bytes) -> ObjectInfo:
        return self._tell(Request("put", path, data))

    def create(self, path: str, data: bytes) -> ObjectInfo:
        return self._tell(Request("create", path, data))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return iter(self._tell(Request("list", prefix, start_after=start_after)))

    def delete(self, path: str) -> None:
        self._tell(Request("delete", path))

    def _tell(self, request: Request):  # type: ignore[no-untyped-def]  # as many types as there are kinds
        if self.given < len(self.answers):
            answer = self.answers[self.given]
            self.given += 1
        else:
            answer = getcurrent().parent.switch(request)
        if answer.error is not None:
            raise answer.error(f"{request.kind} of {request.path}")
        return answer.value


class Explorer:
    """The states of ``programs``, which begin over ``objects`` and meet at most ``faults`` faults of conditional puts.

    A fault is an answer that is lost: of a put that happened, of one that did not, or of one that is still under way.
    """

    def __init__(self, programs: tuple[Program, ...], objects: Objects, faults: int) -> None:
        self.programs = programs
        self.begin = State(objects, tuple(AnswerChain() for _ in programs), faults)
        self._state_by_answers: dict[AnswerChain, ProgramState] = {}
        self._waiting_programs: dict[AnswerChain, tuple[greenlet, list[Hashable]]] = {}
        self._objects = {objects: objects}
        self._result_by_request: dict[tuple[Objects, Request], tuple[Objects, Answer]] = {}
        self._to_read: dict[Objects, MemoryStore] = {}

    def states(self) -> Iterator[State]:
        """All of them, the nearest first."""
        seen_begins, waiting = {self.begin}, deque([self.begin])
        while waiting:
            state = waiting.popleft()
            yield state
            for following in self._following(state):
                if following not in seen_begins:
                    seen_begins.add(following)
                    waiting.append(following)

    def program_states(self, state: State) -> list[ProgramState]:
        """How far each program is."""
        return [self._ask(number, answers) for number, answers in enumerate(state.answered)]

    def _following(self, state: State) -> Iterator[State]:
        for late in state.under_way:
            yield state._replace(objects=self._do(state.objects, late)[0], under_way=state.under_way - {late})
        for number, program in enumerate(self.program_states(state)):
            if program.next is not None:
                yield from self._answer_request(state, number, program.next)

    def _answer_request(self, state: State, number: int, request: Request) -> Iterator[State]:
        objects, answer = self._do(state.objects, request)
        yield _tell_answer(state, number, answer, objects=objects)
        if request.kind == "create" and state.faults:
            lost_answer, left = Answer(error=UnknownOutcomeError), state.faults - 1
            yield _tell_answer(state, number, lost_answer, objects=objects, faults=left)
            yield _tell_answer(state, number, lost_answer, faults=left)
            yield _tell_answer(state, number, lost_answer, faults=left, under_way=state.under_way | {request})
            yield _tell_answer(state, number, Answer(error=StoreUnavailableError), faults=left)

    def _ask(self, number: int, answers: AnswerChain) -> ProgramState:
        if answers not in self._state_by_answers:
            waiting = None if answers.shorter is None else self._waiting_programs.pop(answers.shorter, None)
            if waiting is None:
                said_hashables: list[Hashable] = []
                store = _ReplayStore(answers.answers)
                run = greenlet(lambda: self.programs[number](store, said_hashables.append))
                request = run.switch()
            else:
                run, said_hashables = waiting
                request = run.switch(answers.answers[-1])
            self._state_by_answers[answers] = ProgramState(tuple(said_hashables), request)
            if request is not None and len(self._waiting_programs) < _MOST_WAITING:
                self._waiting_programs[answers] = run, said_hashables
        return self._state_by_answers[answers]

    def _do(self, objects: Objects, request: Request) -> tuple[Objects, Answer]:
        if (objects, request) not in self._result_by_request:
            store = self._store_to_read(objects) if request.kind in _READS else store_with(objects)
            answer = _answer(store, request)
            objects_after = objects if request.kind in _READS or answer.error else contents(store)
            self._result_by_request[objects, request] = self._objects.setdefault(objects_after, objects_after), answer
        return self._result_by_request[objects, request]

    def _store_to_read(self, objects: Objects) -> MemoryStore:
        if objects not in self._to_read:
            self._to_read[objects] = store_with(objects)
        return self._to_read[objects]


def store_with(objects: Objects) -> MemoryStore:
    """A store that holds ``objects``."""
    store = MemoryStore()
    for path, data in objects:
        store.write(path, data)
    return store


def contents(store: MemoryStore) -> Objects:
    """All that is stored."""
    return frozenset((info.path, store.read(info.path)) for info in store.list(""))


def _tell_answer(state: State, number: int, answer: Answer, **changes: object) -> State:
    chains = state.answered
    new_chains = (*chains[:number], chains[number].and_then(answer), *chains[number + 1 :])
    return state._replace(answered=new_chains, **changes)  # type: ignore[arg-type]


def _answer(store: MemoryStore, request: Request) -> Answer:
    calls: dict[str, Callable[[], Hashable]] = {
        "get": lambda: store.read(request.path),
        "stat": lambda: store.stat(request.path),
        "put": lambda: store.write(request.path, request.data),
        "create": lambda: store.create(request.path, request.data),
        "list": lambda: tuple(store.list(request.path, request.start_after)),
        "delete": lambda: store.delete(request.path),
    }
    try:
        return Answer(calls[request.kind]())
    except Exception as error:
        return Answer(error=type(error))
