"""A part of a file, so that several tasks can read one. Its lines or rows do not depend on the task."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A part of a file: pieces ``first`` to before ``after``, of ``of`` pieces of nearly one size."""

    first: int = 0
    after: int = 1
    of: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file."""
        return self.after - self.first == self.of

    def bounds(self, length: int) -> tuple[int, int]:
        """Where it begins and ends if the file is ``length`` long."""
        return length * self.first // self.of, length * self.after // self.of

    def lines(self, data: bytes) -> tuple[int, int]:
        """Where its lines begin and end in ``data``: pieces end after the first newline at or after their share."""
        return self._line(data, self.first), self._line(data, self.after)

    def _line(self, data: bytes, number: int) -> int:
        at = len(data) * number // self.of
        if at in {0, len(data)}:
            return at
        return data.find(b"\n", at - 1) + 1 or len(data)


WHOLE_FILE = Span()
