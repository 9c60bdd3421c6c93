"""Outputs of the predictor, time under sharing and GPU power, in forms that a regressor learns well (Section III-A)."""

from math import fsum

import numpy as np

from heshare.prediction.features import ALONE, CLOCK, IDLE, MPS, OCCUPIED_POWER, OCCUPIED_SM, SM, SM_COUNT
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import require

FORMS = ("load", "ratio", "literal")
"""Forms in which the outputs can be learned; the first is the default."""


class Targets:
    """Both outputs of the predictor as columns to learn, and the conversion back to seconds and watts.

    Every form computes from Table II's features alone. `literal`: time (s) and power (W) as they are. `ratio`: the
    logarithms of time over the time alone and of power over the power without the task. `load`: the logarithms of
    time and power over first guesses from the load, so that a set larger than any recorded one is not predicted like
    the largest recorded one (a tree cannot extrapolate). With u the SM utilisation alone, s the MPS percentage, c the
    clock over the top clock and o the co-runners' occupied SMs, all as fractions, the guesses are

        time:  alone_s (1 - u + u / (c s) max(1, a)),  a = min(u, s) + o
        power: min(idle_w (1 + k c min(1, a)), p),

    that is, only the part of an iteration that computes stretches with the clock, the share and the total demand, and
    power above idle follows the busy SMs and the clock up to a limit. For each type of GPU among the training rows
    (identified by its number of SMs) k is fitted to them by least squares and p is the highest power among them; a GPU
    that was not among them has the k of all rows and no limit.

    Args:
        form: one of `FORMS`.

    Attributes:
        known_sms: number of SMs of each type of GPU among the training rows, ascending, shape (g,).
        gains: k of each of them and of all rows, shape (g + 1,).
        limits_w: p of each of them, and infinity, shape (g + 1,).

    Raises:
        InputError: no such form.
    """

    def __init__(self, form: str = FORMS[0]) -> None:
        require("target", repr(form), form in FORMS, " or ".join(FORMS), "Choose one form.")
        self.form = form
        self.known_sms = np.empty(0)
        self.gains = np.zeros(1)
        self.limits_w = np.full(1, np.inf)

    def fit(self, features: FloatArray, time_s: FloatArray, power_w: FloatArray) -> FloatArray:
        """Return the columns to learn, shape (rows, 2), from features (rows, 14), times (s) and powers (W)."""
        busy = features[:, CLOCK] / 100 * np.minimum(1.0, _demand(features))
        above_idle = power_w / features[:, IDLE] - 1
        self.known_sms = np.unique(features[:, SM_COUNT])
        by_gpu = [features[:, SM_COUNT] == sms for sms in self.known_sms]
        all_rows = np.ones(len(features), dtype=bool)
        # fsum, not a BLAS product: the last bit of that depends on where the arrays lie in memory, and a tree can turn
        # it into another split.
        self.gains = np.array(
            [fsum(busy[rows] * above_idle[rows]) / fsum(busy[rows] ** 2) for rows in (*by_gpu, all_rows)]
        )
        self.limits_w = np.array([*(power_w[rows].max() for rows in by_gpu), np.inf])
        if self.form == "literal":
            return np.column_stack([time_s, power_w])
        base_s, base_w = self._bases(features)
        return np.column_stack([np.log(time_s / base_s), np.log(power_w / base_w)])

    def decode(self, features: FloatArray, learned: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and powers (W), each (rows,), from features (rows, 14) and learned columns (rows, 2)."""
        if self.form == "literal":
            return learned[:, 0], learned[:, 1]
        base_s, base_w = self._bases(features)
        return base_s * np.exp(learned[:, 0]), base_w * np.exp(learned[:, 1])

    def _bases(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self.form == "ratio":
            return features[:, ALONE], features[:, OCCUPIED_POWER]
        busy, clock, share = features[:, SM] / 100, features[:, CLOCK] / 100, features[:, MPS] / 100
        demand, gpu = _demand(features), self._gpu_index(features[:, SM_COUNT])
        base_s = features[:, ALONE] * (1 - busy + busy / (clock * share) * np.maximum(1.0, demand))
        base_w = features[:, IDLE] * (1 + self.gains[gpu] * clock * np.minimum(1.0, demand))
        return base_s, np.minimum(base_w, self.limits_w[gpu])

    def _gpu_index(self, sm_count: FloatArray) -> IntArray:
        # Index of each row's GPU among those of the training rows; their number if it was not among them.
        unknown = len(self.known_sms)
        index = np.searchsorted(self.known_sms, sm_count)
        is_known = np.append(self.known_sms, np.nan)[index] == sm_count
        return np.where(is_known, index, unknown)


def _demand(features: FloatArray) -> FloatArray:
    demand: FloatArray = (np.minimum(features[:, SM], features[:, MPS]) + features[:, OCCUPIED_SM]) / 100
    return demand
