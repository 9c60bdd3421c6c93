"""The cache of predictions on one type of GPU."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from heshare.prediction.features import FeatureEncoder
from heshare.shared.arrays import FloatArray, IntArray

Key = bytes
"""A set of residents at a clock."""


class PredictionCache:
    """The sets that were predicted on one type of GPU, by their clocks and the residents in them.

    The members of a set are ids of residents, by the encoder, the largest first, so that the order of a set's members
    does not matter. The times of all sets are in one flat array, so that a large set does not widen the others.

    Attributes:
        encoder: turns residents into ids, and sets into features.
        number: the number of each set, 0, 1, 2, ... in the order in which they were predicted.
    """

    def __init__(self, encoder: FeatureEncoder) -> None:
        self.encoder = encoder
        self.number: dict[Key, int] = {}
        self._begin = np.zeros(1024, dtype=np.int64)
        self._time_s = np.zeros(4096)
        self._power_w = np.zeros(1024)
        self._rows = np.zeros(1024, dtype=np.int64)

    @staticmethod
    def keys(sm_mhz: IntArray, members: IntArray) -> list[Key]:
        """Return the keys of m sets: clocks, MHz, (m,), and members, the largest first, -1 beyond a set's size, (m, w).

        The width w makes no difference: what follows the last member, bytes of ones, is not part of a key.
        """
        table = np.empty((len(members), members.shape[1] + 1), dtype="<i4")
        table[:, 0] = sm_mhz
        table[:, 1:] = members
        text = table.tobytes()
        width = table.shape[1] * table.itemsize
        return [text[begin : begin + width].rstrip(b"\xff") for begin in range(0, len(text), width)]

    def add(
        self, keys: Iterable[Key], members: IntArray, time_s: FloatArray, power_w: FloatArray, rows: IntArray
    ) -> None:
        """Add the predictions of n new sets.

        Args:
            keys: as from `keys`.
            members: their members, the largest first, -1 beyond a set's size, (n, w).
            time_s: seconds per iteration of each member, (n, w).
            power_w: power of the GPU, W, (n,).
            rows: rows that were predicted for each set, none for what was looked up, (n,).
        """
        first = len(self.number)
        present = members >= 0
        end = self._begin[first] + present.sum(axis=1).cumsum()

        self._time_s = _written(self._time_s, int(self._begin[first]), time_s[present])
        self._begin = _written(self._begin, first + 1, end)
        self._power_w = _written(self._power_w, first, power_w)
        self._rows = _written(self._rows, first, rows)
        self.number.update({key: first + place for place, key in enumerate(keys)})

    def times_s(self, numbers: IntArray, members: IntArray) -> FloatArray:
        """Return seconds per iteration of each member of m known sets, NaN beyond a set's size, (m, w)."""
        place = self._begin[numbers][:, None] + np.arange(members.shape[1])
        # Clipped, since places behind the last set belong to no member.
        time_s: FloatArray = self._time_s.take(place, mode="clip")
        time_s[members < 0] = np.nan
        return time_s

    def power_w(self, numbers: IntArray) -> FloatArray:
        """Return the power of the GPU with each of m known sets, W, (m,)."""
        power_w: FloatArray = self._power_w[numbers]
        return power_w

    def rows(self, numbers: IntArray) -> int:
        """Return how many rows were predicted for some known sets."""
        return int(self._rows[numbers].sum())


def _written(array: Any, first: int, values: Any) -> Any:
    # Values from a place on, in the array, or in a copy twice as long as needed where they do not fit.
    end = first + len(values)
    if end > len(array):
        array = np.concatenate((array, np.zeros(2 * end - len(array), dtype=array.dtype)))
    array[first:end] = values
    return array
