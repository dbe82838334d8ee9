"""A manifest as one of several outputs sees it: as if its pipeline had that output alone, without a name.

Readers of an output need not know of the others. Where a pipeline has outputs with names, ``outputs`` of the schema,
progress and definition has what is each output's own. The rest stands once for all.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from headrace.errors import FixConfigError
from headrace_snapshots.format.codec import JSON
from headrace_snapshots.format.manifest import (
    ADOPTED,
    FORMERLY,
    IDS,
    INPUT_WATERMARK,
    INPUTS,
    OUTPUTS,
    REJECTED,
    Manifest,
    OutputTables,
)

T = TypeVar("T")

_ASIDE = "~"
"""Ends a name that no output can have."""

OF_OUTPUT = (
    "output_watermarks",
    "next_event_time_deadline",
    "next_processing_time_deadline",
    INPUT_WATERMARK,
)
"""The fields of progress that each output has of its own."""


class UnknownOutputError(FixConfigError, code="config.unknown_output"):
    """A snapshot has no output of that name, or names without which none can be read."""


def outputs_of(manifest: Manifest) -> tuple[str, ...]:
    """The names of the outputs of a snapshot; none if it has one output without a name."""
    return tuple(manifest.schema.get(OUTPUTS, ()))


def parked_in(manifest: Manifest) -> dict[str, int]:
    """The outputs that stand still in a snapshot, and the epoch that each has come to, -1 if it has not begun."""
    own: Mapping[str, JSON] = manifest.progress.get(OUTPUTS, {})
    return {output: progress["epoch"] for output, progress in own.items() if progress.get("parked") is not None}


def come_to(manifest: Manifest, output: str) -> int:
    """The epoch that an ``output`` has come to in a snapshot, which may be seen as the output sees it."""
    own = manifest.progress if "output" in manifest.schema else manifest.progress.get(OUTPUTS, {}).get(output, {})
    return int(own["epoch"]) if own.get("parked") is not None else manifest.epoch


def goes_on(old_manifest: Manifest, new_manifest: Manifest, output: str) -> bool:
    """Whether an ``output`` of ``new_manifest`` goes on with the rows that it has in ``old_manifest``, from which
    ``new_manifest`` continues; not if they were computed again, or are those of another output that had the name then.
    Both may be seen as the output sees them.
    """
    old_schema, now = (_own_schema(side, output) for side in (old_manifest, new_manifest))
    names_before, calls = ([*own.get(FORMERLY, ())] for own in (old_schema, now))
    is_same = names_before == calls or (bool(names_before) and calls[-len(names_before) :] == names_before)
    return is_same and old_schema.get(ADOPTED) == now.get(ADOPTED)


def _own_schema(manifest: Manifest, output: str) -> Mapping[str, JSON]:
    own: Mapping[str, JSON] = manifest.schema
    return own if "output" in own else own.get(OUTPUTS, {}).get(output, {})


def news_since(old_manifest: Manifest | None, new_manifest: Manifest, output: str) -> int:
    """The epoch after which epochs of ``new_manifest`` are news of an ``output`` to who has ``old_manifest``, which it
    continues from; -1: all are, as its rows have been computed again meanwhile, or there is no ``old_manifest``.
    """
    if old_manifest is None or not goes_on(old_manifest, new_manifest, output):
        return -1
    return come_to(old_manifest, output)


def output_names(manifest: Manifest) -> tuple[str, ...]:
    """All outputs of a snapshot; the one without a name is ""."""
    return outputs_of(manifest) or ("",)


def upstream_of(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """The outputs of whose panes each output of a snapshot is computed; none: of records."""
    definitions: Mapping[str, Mapping[str, JSON]] = manifest.definition.get(OUTPUTS, {})
    return {
        output: tuple(dict.fromkeys(upstream["output"] for upstream in own.get("of", ())))
        for output, own in definitions.items()
    }


def all_names_before(manifest: Manifest, output: str) -> tuple[str, ...]:
    """What an ``output`` of a snapshot was called before, newest name first."""
    return tuple(_own_schema(manifest, output).get(FORMERLY, ()))


def called_before(manifest: Manifest, output: str) -> tuple[str, ...]:
    """The same, without what others are called now."""
    return tuple(name for name in all_names_before(manifest, output) if name not in outputs_of(manifest))


def called_now(manifest: Manifest, name: str) -> str | None:
    """What the output that is, or was, called ``name`` is called in a snapshot; None: it is gone."""
    names = output_names(manifest)
    return name if name in names else next((now for now in names if name in called_before(manifest, now)), None)


def called_where(names_there: Collection[str], now: Manifest, output: str) -> str | None:
    """What an ``output`` of ``now`` was called where the outputs were ``names_there``; None if it had not come then: a
    name is that of the output which has been called otherwise most often since. A name that no output of ``now`` has is
    one of before: there it means itself.
    """

    def possible_names(one: str) -> tuple[str, ...]:
        return (one, *all_names_before(now, one))

    name_then = next((name for name in possible_names(output) if name in names_there), None)
    for other in outputs_of(now) if name_then is not None and output in outputs_of(now) else ():
        newest = next((name for name in possible_names(other) if name in names_there), None)
        if newest == name_then and possible_names(other).index(name_then) > possible_names(output).index(name_then):
            return None
    return name_then


def called_in(old_manifest: Manifest, now: Manifest, output: str) -> str | None:
    """What an ``output`` of ``now`` is called in ``old_manifest``, from which ``now`` has come; None if it had not come
    then. It is the one that had had the same names before; where several had, of that which has been called otherwise
    most often since: who has its name now came later.
    """
    own = _found_in(old_manifest, now, output)
    if own is None:
        return None
    others = (_found_in(old_manifest, now, other) for other in output_names(now) if other != output)
    is_taken = any(other is not None and other[1] == own[1] and other[0] > own[0] for other in others)
    return None if is_taken else own[1]


def _found_in(old_manifest: Manifest, now: Manifest, output: str) -> tuple[int, str] | None:
    """How often an ``output`` of ``now`` was renamed since ``old_manifest``, and what it was called there."""
    names = (output, *all_names_before(now, output))
    for number, name in enumerate(names):
        if name in output_names(old_manifest) and all_names_before(old_manifest, name) == names[number + 1 :]:
            return number, name
    return None


def called_on(main: Manifest, branch: Manifest) -> dict[str, str | None]:
    """What ``main`` calls each output of a ``branch`` that takes its place; None: it has none such. A name that no
    output had before means itself, also where the branch does not say what it was called earlier.
    """
    main_names = {output: called_in(main, branch, output) for output in output_names(branch)}
    free = {*output_names(main)} - {*main_names.values()}
    return {
        output: output if main_name is None and output in free else main_name
        for output, main_name in main_names.items()
    }


def called_since(old_manifest: Manifest, now: Manifest) -> dict[str, str | None]:
    """What each output of ``old_manifest`` is called in ``now``, which has come from it; None: it is gone there."""
    names_now: dict[str, str | None] = dict.fromkeys(output_names(old_manifest))
    for output in output_names(now):
        if (name_then := called_in(old_manifest, now, output)) is not None:
            names_now[name_then] = output
    return names_now


def first_name(manifest: Manifest, output: str) -> str:
    """What an ``output`` of a snapshot was called first, as far as anyone knows; never the empty name."""
    formerly: list[str] = manifest.schema.get(OUTPUTS, {}).get(output, {}).get(FORMERLY, [])
    return next(name for name in (*reversed(formerly), output) if name)


def with_names(manifest: Manifest, formerly: Mapping[str, str]) -> Manifest:
    """``manifest`` as if some of its outputs had new names: ``formerly`` has the old one of each, "" where the only
    output had none. An output that has such a new name, and none itself, is out of the way under another. Files stay
    where they are.
    """
    left, aside = dict(formerly), dict[str, str]()
    while left:
        outputs = outputs_of(manifest)
        new = next((name for name in left if name not in outputs), None)
        if new is None:
            in_the_way = next(iter(left))
            new, old = f"{in_the_way}{_ASIDE}", in_the_way
            aside[new] = old
            left = {name: new if old_name == old else old_name for name, old_name in left.items()}
        else:
            old = left.pop(new)
        manifest = _rename_output(manifest, new, old, aside) if old else _name_output(manifest, new)
    return manifest


def as_called_in(old_manifest: Manifest, now: Manifest) -> Manifest:
    """``old_manifest`` with its outputs called what they are in ``now``, which has come from it."""
    names_now = called_since(old_manifest, now)
    return with_names(old_manifest, {new: old for old, new in names_now.items() if new is not None and new != old})


def _name_output(manifest: Manifest, name: str) -> Manifest:
    names = OutputTables(name)
    progress = {field: value for field, value in manifest.progress.items() if field not in OF_OUTPUT}
    if (held_to := progress.get("held_to")) is not None:
        rest = {field: value for field, value in held_to.items() if field not in OF_OUTPUT}
        progress["held_to"] = {**rest, OUTPUTS: {name: _output_fields(held_to)}}
    shared_fields = {field: value for field, value in manifest.definition.items() if field != "stages"}
    definition = {
        **shared_fields,
        "format": 2,
        OUTPUTS: {name: {"stages": manifest.definition.get("stages", [])}},
    }
    return manifest.seen_as(
        schema={OUTPUTS: {name: {**manifest.schema, "fingerprint": manifest.fingerprint, FORMERLY: [""]}}},
        progress={**progress, OUTPUTS: {name: _output_fields(manifest.progress)}},
        tables=_with_output_names(manifest.tables, names),
        logs=_with_output_names(manifest.logs, names),
        counts={**manifest.counts, **{names.qualified_name(count): n for count, n in manifest.counts.items()}},
        definition=definition if manifest.definition else {},
    )


def _rename_output(manifest: Manifest, new: str, old: str, aside: Mapping[str, str]) -> Manifest:
    """``aside``: names that outputs have only while others are named, and what each was called."""
    old_tables, names = OutputTables(old), OutputTables(new)

    def rename_tables(values_by_table: Mapping[str, T]) -> dict[str, T]:
        plain = {name: old_tables.plain_name(name) for name in values_by_table}
        return {
            name if (own := plain[name]) is None else names.qualified_name(own): value
            for name, value in values_by_table.items()
        }

    def rename_in_outputs(part: Mapping[str, JSON]) -> dict[str, JSON]:
        own = part.get(OUTPUTS)
        moved_fields = (
            {} if own is None else {OUTPUTS: {new if name == old else name: its for name, its in own.items()}}
        )
        return {**part, **moved_fields}

    schema, progress = rename_in_outputs(manifest.schema), rename_in_outputs(manifest.progress)
    own = schema[OUTPUTS][new]
    if new not in aside:
        schema[OUTPUTS][new] = {
            **own,
            FORMERLY: [aside.get(old, old), *own.get(FORMERLY, ())],
        }
    if progress.get("held_to") is not None:
        progress["held_to"] = rename_in_outputs(progress["held_to"])
    return manifest.seen_as(
        schema=schema,
        progress=progress,
        tables=rename_tables(manifest.tables),
        logs=rename_tables(manifest.logs),
        counts=rename_tables(manifest.counts),
        definition=_rename_upstream(rename_in_outputs(manifest.definition), new, old),
    )


def _rename_upstream(definition: dict[str, JSON], new: str, old: str) -> dict[str, JSON]:
    """``definition``, whose outputs read the output by its new name."""
    if OUTPUTS not in definition:
        return definition
    outputs = {
        name: {
            **own,
            "of": [{**upstream, "output": new} if upstream["output"] == old else upstream for upstream in own["of"]],
        }
        if "of" in own
        else own
        for name, own in definition[OUTPUTS].items()
    }
    return {**definition, OUTPUTS: outputs}


def _output_fields(fields: Mapping[str, JSON]) -> dict[str, JSON]:
    return {field: fields[field] for field in OF_OUTPUT if field in fields}


def _with_output_names(values_by_name: Mapping[str, T], names: OutputTables) -> dict[str, T]:
    return {
        name if name in (IDS, INPUTS, REJECTED) else names.qualified_name(name): value
        for name, value in values_by_name.items()
    }


def seen_by(manifest: Manifest, output: str) -> Manifest:
    """``manifest`` as ``output`` sees it; "" sees that of a pipeline without names. Raises UnknownOutputError."""
    outputs = outputs_of(manifest)
    if not output and not outputs:
        return manifest
    where = f"snapshot {manifest.snapshot_id} (epoch {manifest.epoch}) of pipeline {manifest.pipeline}"
    if not output:
        raise UnknownOutputError(
            f"{where} has the outputs {', '.join(outputs)}: name one of them, such as {manifest.pipeline}.{outputs[0]}"
        )
    if output not in outputs:
        has = f"the outputs {', '.join(outputs)}" if outputs else "one output, which has no name"
        raise UnknownOutputError(f"{where} has no output {output!r}: it has {has}")
    own: dict[str, JSON] = dict(manifest.schema[OUTPUTS][output])
    names = OutputTables(output)
    return manifest.seen_as(
        fingerprint=own.pop("fingerprint"),
        schema={**own, "output": output},
        progress=_output_progress(manifest.progress, output),
        tables=_with_plain_names(manifest.tables, names),
        logs=_with_plain_names(manifest.logs, names),
        counts={**_shared_values(manifest.counts), **_with_plain_names(manifest.counts, names)},
        definition=_output_definition(manifest.definition, output),
    )


def _output_definition(definition: Mapping[str, JSON], output: str) -> dict[str, JSON]:
    """Without the inputs that other outputs alone join."""
    own = _merge_output_fields(definition, output)
    others = {name for other in definition[OUTPUTS].values() for name in _joined_inputs(other)}
    left_out = others - {*_joined_inputs(own)}
    inputs = [input_ for input_ in own.get("inputs", ()) if input_["name"] not in left_out]
    return {**own, **({"inputs": inputs} if "inputs" in own else {}), "format": 1}


def _joined_inputs(definition: Mapping[str, JSON]) -> Iterator[str]:
    """The inputs that an output joins, or one that it reads."""
    yield from (join["input"] for join in definition.get("joins", ()) if "input" in join)  # others join outputs
    for upstream in definition.get("of", ()):
        yield from _joined_inputs(upstream)


def _output_progress(progress: Mapping[str, JSON], output: str) -> dict[str, JSON]:
    merged_progress = _merge_output_fields(progress, output)
    merged_progress["watermark"] = merged_progress.pop(INPUT_WATERMARK, merged_progress["watermark"])
    if (held_to := merged_progress.get("held_to")) is not None:  # of main, which may have had other outputs
        merged_progress["held_to"] = _merge_output_fields(
            {OUTPUTS: {output: {"output_watermarks": []}}, **held_to}, output
        )
    return merged_progress


def _merge_output_fields(value: Mapping[str, JSON], output: str) -> dict[str, JSON]:
    return {
        **{name: part for name, part in value.items() if name != OUTPUTS},
        **value[OUTPUTS].get(output, {}),
    }


def _shared_values(values_by_name: Mapping[str, T]) -> dict[str, T]:
    return {name: value for name, value in values_by_name.items() if "/" not in name}


def _with_plain_names(values_by_name: Mapping[str, T], names: OutputTables) -> dict[str, T]:
    """What is shared, and what is the output's, called as if it had no name."""
    own = {plain: value for name, value in values_by_name.items() if (plain := names.plain_name(name)) is not None}
    return {**_shared_values(values_by_name), **own}
