"""When to merge the layers of a layered table: a pure decision over their row counts.

The tier of a layer is floor(log16(rows)). Read from the newest layer back, the layers up to the first of a higher tier
than the newest are its *group*; in the whole list every layer belongs to the group of the highest tier at or after
it, so there are at most as many groups as tiers. Only the newest group can grow. When sixteen have gathered in it they
become one:

* fewer than sixteen layers a tier stay: at most 15 * (log16(largest layer) + 1) layers, however many epochs;
* a merge of a group ends in a layer of the group's own tier, so what a row is in grows by a whole layer of that tier
  each time: a row is rewritten at most sixteen times a tier, and in steady streams once.
"""

from collections.abc import Sequence

FANOUT = 16


def tier(rows: int) -> int:
    """floor(log16(rows)), 0 for an empty layer."""
    return (max(rows, 1).bit_length() - 1) // 4


def plan_merge(rows: Sequence[int]) -> int | None:
    """Where to start: layers[start:] should become one layer; None when nothing is to be merged.

    ``rows``: rows of each layer, oldest first. Meant to be asked after each new layer.
    """
    start, sizes = None, list(rows)
    while (begin := _newest_group(sizes)) <= len(sizes) - FANOUT:
        start = begin
        # Merged it may complete a group of the next tier: then that is rewritten once instead of twice.
        sizes = [*sizes[:begin], sum(sizes[begin:])]
    return start


def _newest_group(sizes: Sequence[int]) -> int:
    begin = len(sizes)
    while begin > 0 and tier(sizes[begin - 1]) <= tier(sizes[-1]):
        begin -= 1
    return begin
