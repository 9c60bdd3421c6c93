"""Throughput and energy of a training job from a short pre-run, by least squares: what PowerFlow plans with.

A step on n GPUs takes t(n, f) = (fixed^q + (compute f_max / f)^q)^(1/q) + sync (n - 1) / n: host work and GPU work,
which scales with the clock and overlaps with the former, and a ring's share of the gradients to exchange. On each GPU
it costs e(n, f) = static t(n, f) + steady + rising (f / f_max)^2: leakage for as long as it takes, and work at a
voltage that is flat at first and then rises with the clock. The record of PowerFlow names the terms (a gradient time
that depends on the clock, a synchronisation time, static and dynamic energy) and not their forms: these are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from heshare.errors import InputError

FloatArray = NDArray[np.float64]
SHARPNESS = (1.0, 2.0, 4.0, 8.0)
"""Exponents q to choose among, from one part after the other to both at once."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds per step of a job, as fitted.

    Attributes:
        fixed_s: what neither the clock nor the number of GPUs changes, s.
        compute_s: GPU work at the top clock, s.
        sync_s: the exchange of gradients between very many GPUs, s.
        sharpness: the exponent q: how far the first two overlap.
    """

    fixed_s: float
    compute_s: float
    sync_s: float
    sharpness: float = 1.0

    def at(self, gpus: ArrayLike, speed: ArrayLike) -> FloatArray:
        """Seconds per step.

        Args:
            gpus: how many GPUs.
            speed: the clock over the top clock.

        Returns:
            Of the shape that the two broadcast to.
        """
        n, x, q = np.asarray(gpus, dtype=np.float64), np.asarray(speed, dtype=np.float64), self.sharpness
        gradient_s = (self.fixed_s**q + (self.compute_s / x) ** q) ** (1 / q)
        return np.asarray(gradient_s + self.sync_s * (n - 1) / n)


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """Energy of one GPU for one step of a job, as fitted.

    Attributes:
        static_w: power that is drawn at any clock, W.
        steady_j: work at the lowest voltage, J.
        rising_j: what work takes more at the top clock, J.
    """

    static_w: float
    steady_j: float
    rising_j: float

    def at(self, time_s: ArrayLike, speed: ArrayLike) -> FloatArray:
        """Energy, J, of a step that takes `time_s` at a clock over the top clock; of the shape that both have."""
        x = np.asarray(speed, dtype=np.float64)
        return np.asarray(self.static_w * np.asarray(time_s) + self.steady_j + self.rising_j * x**2)


def fit_time(gpus: ArrayLike, speed: ArrayLike, time_s: ArrayLike, /) -> StepTime:
    """The step time that fits measured ones best: least squares of relative errors, no term below zero.

    Args:
        gpus: numbers of GPUs of the measurements, shape (m,).
        speed: their clocks over the top clock, shape (m,).
        time_s: seconds per step, shape (m,).

    Raises:
        InputError: no measurement on one GPU, or shapes that differ.
    """
    n, x, t = _columns(gpus, speed, time_s)
    one = n == 1
    _check(bool(one.any()), "no measurement on one GPU")
    fits = [_gradient(x[one], t[one], q) for q in SHARPNESS]
    best = min(fits, key=lambda fit: float(np.sum((fit.at(1, x[one]) / t[one] - 1) ** 2)))
    sync_s = 0.0
    if not one.all():
        share = (n[~one] - 1) / n[~one]
        sync_s = max(0.0, float(share @ (t[~one] - best.at(1, x[~one])) / (share @ share)))
    return StepTime(best.fixed_s, best.compute_s, sync_s, best.sharpness)


def fit_energy(time_s: ArrayLike, speed: ArrayLike, energy_j: ArrayLike, /) -> StepEnergy:
    """The energy of a step that fits measured ones best: least squares of relative errors, no term below zero.

    Args:
        time_s: seconds per step, shape (m,).
        speed: clocks over the top clock, shape (m,).
        energy_j: energy of one GPU for a step, J, shape (m,).

    Raises:
        InputError: no measurement, or shapes that differ.
    """
    t, x, e = _columns(time_s, speed, energy_j)
    return StepEnergy(*_solve(np.stack([t, np.ones(len(t)), x**2], axis=1), e))


def _gradient(speed: FloatArray, time_s: FloatArray, sharpness: float) -> StepTime:
    """With a given exponent q, t^q is linear in what is to be found."""
    terms = np.stack([np.ones(len(speed)), speed**-sharpness], axis=1)
    fixed, compute = _solve(terms, time_s**sharpness)
    return StepTime(fixed ** (1 / sharpness), compute ** (1 / sharpness), 0.0, sharpness)


def _solve(terms: FloatArray, values: FloatArray) -> list[float]:
    # Relative errors count: a slow clock has no more say than a fast one.
    found: list[float] = nnls(terms / values[:, None], np.ones(len(values)))[0].tolist()
    return found


def _columns(*columns: ArrayLike) -> list[FloatArray]:
    found = [np.asarray(column, dtype=np.float64) for column in columns]
    shapes = {column.shape for column in found}
    _check(len(shapes) == 1 and found[0].ndim == 1 and found[0].size > 0, f"columns of shapes {sorted(shapes)}")
    return found


def _check(good: bool, found: str) -> None:
    if not good:
        raise InputError(
            column="pre-run",
            found=found,
            expected="at least one measurement, each with all of its numbers, and one on one GPU",
            action="Measure every point once.",
        )
