"""One of several outputs of a pipeline: what is computed of the same records as its others."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model.accumulation import How
from headrace.model.arguments import Arguments
from headrace.model.combiners import Aggregate
from headrace.model.expressions.coercion import Key
from headrace.model.expressions.expr import Expr
from headrace.model.suggestions import keywords
from headrace.model.triggers import Trigger
from headrace.model.triggers.leaves import Default
from headrace.model.windows import WindowFn
from headrace.pipeline.aggregation import Aggregation
from headrace.pipeline.expectations import Expectation

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
AT_THE_END = Default()


@keywords
@dataclass(frozen=True, init=False)
class Output:
    """One aggregation of a pipeline's records, or several in a chain (``then``), beside the pipeline's other
    ``outputs``.

    Its arguments mean what those of a ``Pipeline`` with one output mean. ``filter`` comes after that of the pipeline,
    which is for all outputs, and after duplicates are told.

    >>> hourly = hr.Output(key="shop", what={"total": hr.col("amount").sum()}, where=hr.FixedWindows("1h"))
    >>> list(hourly.what)
    ['total']
    """

    key: Mapping[str, Expr]
    what: Mapping[str, Aggregate]
    where: WindowFn
    when: Trigger
    how: How
    filter: Expr | None
    renamed: Mapping[str, str]
    first: Aggregation = field(init=False, repr=False, compare=False)
    then: tuple[Aggregation, ...]
    expectations: tuple[Expectation, ...]
    description: str
    allow_finishing: bool
    allow_double_counting: bool

    def __init__(
        self,
        *,
        key: Key = None,
        what: Mapping[str, Aggregate],
        where: WindowFn,
        when: Trigger = AT_THE_END,
        how: How | None = None,
        filter: Expr | None = None,  # noqa: A002 (the word of the domain)
        renamed: Mapping[str, str] | None = None,
        then: Sequence[Aggregation] = (),
        expectations: Sequence[Expectation] = (),
        description: str = "",
        allow_finishing: bool = False,
        allow_double_counting: bool = False,
    ) -> None:
        given = Arguments("Output")
        if when is None:
            raise given.wrong("when", when, "there is no trigger before it to continue; leave it out for Default()")
        first = Aggregation(
            key=key, what=what, where=where, when=when, how=how, filter=filter, renamed=renamed, _owner=given.owner
        )
        set_ = object.__setattr__
        set_(self, "first", first)
        for part in ("key", "what", "where", "when", "how", "filter", "renamed"):
            set_(self, part, getattr(first, part))
        set_(self, "then", given.several("then", then, Aggregation, "Aggregation(...)"))
        set_(self, "expectations", given.several("expectations", expectations, Expectation, "expect(...)"))
        set_(self, "description", given.instance("description", description, str, "text"))
        set_(self, "allow_finishing", given.flag("allow_finishing", allow_finishing))
        set_(self, "allow_double_counting", given.flag("allow_double_counting", allow_double_counting))


def named_outputs(given: Arguments, outputs: object) -> dict[str, Output]:
    """The ``outputs`` of a pipeline by name; none if it has one without a name. Raises PipelineError."""
    if outputs is None:
        return {}
    named = given.mapping("outputs", outputs, Output, '{"hourly": Output(...), "daily": Output(...)}', least=0)
    for name, output in named.items():
        if not NAME.fullmatch(name) or name == "py":  # shop.py is a file
            raise given.wrong(
                "outputs",
                name,
                "write lower case letters, digits and _, at most 63, starting with a letter; not py",
            )
        for aggregation in output.then:
            if aggregation.transform is not None:
                raise given.wrong(
                    f"outputs[{name!r}]",
                    aggregation.transform.name,
                    "panes go through Spark code only in a pipeline with one output without a name",
                )
    return named


def check_apart(given: Arguments, own: Mapping[str, object]) -> None:
    """Raise PipelineError if one of the arguments that each output has of its ``own`` is given beside them."""
    if own.get("usual"):
        raise given.wrong(
            "usual", own["usual"], "checks against history are of pipelines with one output: leave it out"
        )
    for name, value in own.items():
        if value:
            raise given.wrong(name, value, "a pipeline with outputs= has it in each of them; write it into an Output")
