"""What a run lands, in portions as large as its epochs: the next one when the one before it has been read."""

from collections.abc import Iterable, Iterator, Mapping

from headrace.sources.landed.lander import Lander, Portion, PortionSize


class LandedPortions:
    """What the ``landers`` of a run land, by input, each ``after`` a file up to which all are there, ``most`` at once.

    ``left``: about how many bytes inputs have that are not landed yet; an input of which all is landed is not there.
    """

    def __init__(
        self, landers: Mapping[str, Lander], after: Mapping[str, str], most: Mapping[str, PortionSize]
    ) -> None:
        self._portions: dict[str, Iterator[Portion]] = {
            name: lander.portions(after.get(name, ""), most[name]) for name, lander in landers.items()
        }
        self.left: dict[str, int] = {}
        self.land(self._portions)

    def land(self, names: Iterable[str]) -> None:
        """Land the next portion of each of these inputs. Raises what landing raises."""
        for name in [*names]:
            left = next(self._portions[name]).left
            self.left |= {name: left}
            if not left:
                del self.left[name]
