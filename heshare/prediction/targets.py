"""Outputs of the predictor, time under sharing and GPU power, as a regressor learns them well (Section III-A)."""

import numpy as np

from heshare.prediction.features import (
    ALONE,
    CLOCK,
    DRAM,
    GUESSED_POWER,
    IDLE,
    L2,
    MPS,
    OCCUPIED_DRAM,
    OCCUPIED_L2,
    OCCUPIED_SM,
    SM,
    SM_COUNT,
)
from heshare.shared.arrays import FloatArray, IntArray


class Targets:
    """Both outputs of the predictor as columns to learn, and the conversion back to seconds and watts.

    The columns are the logarithms of time and power over first guesses from the load, so that a set larger than any
    recorded one is not predicted like the largest recorded one (a tree cannot extrapolate). With u the SM utilisation
    alone, s the MPS percentage, c the clock over the top clock and o the co-runners' occupied SMs, all as fractions,
    the guesses are

        time:  alone_s (1 - u + u / (c s) max(1, a)),  a = min(u, s) + o
        power: min(guessed_w, p),

    that is, only the part of an iteration that computes stretches with the clock, the share and the total demand, and
    power is that of the column `GUESSED_POWER` up to a limit p: the highest power among the training rows of this type
    of GPU (identified by its number of SMs), none for a type that was not among them.

    Attributes:
        known_sms: number of SMs of each type of GPU among the training rows, ascending, shape (g,).
        limits_w: p of each of them, and infinity, shape (g + 1,).
    """

    def __init__(self) -> None:
        self.known_sms = np.empty(0)
        self.limits_w = np.full(1, np.inf)

    def fit(self, features: FloatArray, time_s: FloatArray, power_w: FloatArray) -> FloatArray:
        """Return the columns to learn, shape (rows, 2), from features (rows, 15), times (s) and powers (W)."""
        self.known_sms = np.unique(features[:, SM_COUNT])
        by_gpu = [features[:, SM_COUNT] == sms for sms in self.known_sms]
        self.limits_w = np.array([*(power_w[rows].max() for rows in by_gpu), np.inf])
        base_s, base_w = self._bases(features)
        return np.column_stack([np.log(time_s / base_s), np.log(power_w / base_w)])

    def decode(self, features: FloatArray, learned: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and powers (W), each (rows,), from features (rows, 15) and learned columns (rows, 2)."""
        base_s, base_w = self._bases(features)
        return base_s * np.exp(learned[:, 0]), base_w * np.exp(learned[:, 1])

    def columns(self, features: FloatArray) -> FloatArray:
        """Return the load of rows of features (rows, 15) as columns in which it acts smoothly, shape (rows, 17).

        The task's and the GPU's features, both first guesses of time (an iteration that computes throughout, and one
        whose computing is hidden until it is longer than the rest), the demand, and by how much power is over p.
        """
        busy, share, clock = features[:, SM] / 100, features[:, MPS] / 100, features[:, CLOCK] / 100
        occupied = features[:, OCCUPIED_SM] / 100
        demand = np.minimum(busy, share) + occupied
        stretched = busy * np.maximum(1.0, demand) / (clock * share)
        percentages = features[:, [DRAM, L2, OCCUPIED_DRAM, OCCUPIED_L2]] + 1
        guessed_w = features[:, GUESSED_POWER]
        positive = [
            busy + 1e-3, *percentages.T, features[:, ALONE], share, clock, occupied + 0.05,
            guessed_w / features[:, IDLE], features[:, SM_COUNT], features[:, IDLE], 1 - busy + stretched,
            np.maximum(1.0, stretched), demand,
        ]  # fmt: skip
        limits_w = self.limits_w[self._gpu_index(features[:, SM_COUNT])]
        over = np.maximum(1.0, guessed_w / limits_w)
        return np.column_stack([*np.log(positive), clock * np.minimum(1.0, demand), over])

    def _bases(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        busy, clock, share = features[:, SM] / 100, features[:, CLOCK] / 100, features[:, MPS] / 100
        demand = (np.minimum(features[:, SM], features[:, MPS]) + features[:, OCCUPIED_SM]) / 100
        base_s = features[:, ALONE] * (1 - busy + busy / (clock * share) * np.maximum(1.0, demand))
        limits_w = self.limits_w[self._gpu_index(features[:, SM_COUNT])]
        return base_s, np.minimum(features[:, GUESSED_POWER], limits_w)

    def _gpu_index(self, sm_count: FloatArray) -> IntArray:
        # Index of each row's GPU among those of the training rows; their number if it was not among them.
        unknown = len(self.known_sms)
        index = np.searchsorted(self.known_sms, sm_count)
        is_known = np.append(self.known_sms, np.nan)[index] == sm_count
        return np.where(is_known, index, unknown)
