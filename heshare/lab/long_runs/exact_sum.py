"""Sum of any number of values, exactly rounded, so that it does not depend on their order."""

from math import fsum

_TOGETHER = 1024


class ExactSum:
    """Running sum that equals `math.fsum` of all values that were added, in bounded memory."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def add(self, value: float) -> None:
        """Add a finite value."""
        self._values.append(value)
        if len(self._values) >= _TOGETHER:
            self._merge()

    def _merge(self) -> None:
        """Replace the values by few of the same sum: the rounded sum, the rounded rest, and so on until no rest."""
        parts: list[float] = []
        while rest := fsum([*self._values, *[-part for part in parts]]):
            parts.append(rest)
        self._values = parts

    @property
    def value(self) -> float:
        """The sum of the values so far."""
        return fsum(self._values)
