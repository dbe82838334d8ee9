"""Which outputs may be published, and how far: a pure function of audits and of what is computed of what.

An output is never published beyond what it is computed of: else readers would see sums of rows whose audit failed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

NOTHING_YET = -1


@dataclass(frozen=True)
class OutputVersions:
    """``published``: the epoch that readers of an output see. ``passed``: epochs of main after it up to which an audit
    from there on succeeded. ``of``: the outputs that it is computed of; none: of records.
    """

    published: int = NOTHING_YET
    passed: frozenset[int] = field(default_factory=frozenset)
    of: tuple[str, ...] = ()


def publishable(outputs: Mapping[str, OutputVersions]) -> dict[str, int]:
    """The epoch that readers of each output may see: the newest up to which its audit succeeded, and which readers of
    all that it is computed of see as well. Where that is nothing new, the epoch that they see.
    """
    reached: dict[str, int] = {}

    def reach(output: str) -> int:
        if output not in reached:
            versions = outputs[output]
            above = [reach(name) for name in versions.of if name in outputs]
            allowed = [epoch for epoch in versions.passed if all(epoch <= bound for bound in above)]
            reached[output] = max([versions.published, *allowed])
        return reached[output]

    for output in outputs:
        reach(output)
    return {output: reached[output] for output in outputs}


def held_back(outputs: Mapping[str, OutputVersions], wanted: int) -> dict[str, tuple[str, ...]]:
    """Outputs whose audit up to epoch ``wanted`` succeeded and that may not be published so far, with those of what
    they are computed of that are to blame.
    """
    reached = publishable(outputs)
    return {
        output: tuple(name for name in versions.of if reached.get(name, wanted) < wanted)
        for output, versions in outputs.items()
        if wanted in versions.passed and reached[output] < wanted
    }
