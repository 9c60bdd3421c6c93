"""Throughput and power of a training job from a short pre-run, by least squares: what PowerFlow plans with.

A step takes t(n, f) = fixed + compute * f_max / f + sync * (n - 1) / n: host work, GPU work that scales with the clock,
and a ring's share of the gradients to exchange. A GPU draws P(f) = static + linear * f / f_max + cubic * (f / f_max)^3
meanwhile. The record of PowerFlow names the terms (a gradient time that depends on the clock, a synchronisation time,
static and dynamic power) and not their forms: these are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from heshare.errors import InputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds per step of a job, as fitted.

    Attributes:
        fixed_s: what neither the clock nor the number of GPUs changes, s.
        compute_s: GPU work at the top clock, s.
        sync_s: the exchange of gradients between very many GPUs, s.
    """

    fixed_s: float
    compute_s: float
    sync_s: float

    def at(self, gpus: ArrayLike, speed: ArrayLike) -> FloatArray:
        """Seconds per step.

        Args:
            gpus: how many GPUs.
            speed: the clock over the top clock.

        Returns:
            Of the shape that the two broadcast to.
        """
        return np.asarray(_terms_of_time(gpus, speed) @ np.array([self.fixed_s, self.compute_s, self.sync_s]))


@dataclass(frozen=True, slots=True)
class BoardPower:
    """Power of one GPU while a job runs on it, as fitted.

    Attributes:
        static_w: at any clock, W.
        linear_w: what grows with the clock, at the top clock, W.
        cubic_w: what grows with the clock and its voltage, at the top clock, W.
    """

    static_w: float
    linear_w: float
    cubic_w: float

    def at(self, speed: ArrayLike) -> FloatArray:
        """Power, W, at a clock over the top clock; of the same shape."""
        return np.asarray(_terms_of_power(speed) @ np.array([self.static_w, self.linear_w, self.cubic_w]))


def fit_time(gpus: ArrayLike, speed: ArrayLike, time_s: ArrayLike, /) -> StepTime:
    """The step time that fits measured ones best (least squares, no term below zero).

    Args:
        gpus: numbers of GPUs of the measurements, shape (m,).
        speed: their clocks over the top clock, shape (m,).
        time_s: seconds per step, shape (m,).

    Raises:
        InputError: no measurement, or shapes that differ.
    """
    return StepTime(*_solve(_terms_of_time(gpus, speed), time_s))


def fit_power(speed: ArrayLike, power_w: ArrayLike, /) -> BoardPower:
    """The power that fits measured ones best (least squares, no term below zero).

    Args:
        speed: clocks over the top clock, shape (m,).
        power_w: of one GPU, W, shape (m,).

    Raises:
        InputError: no measurement, or shapes that differ.
    """
    return BoardPower(*_solve(_terms_of_power(speed), power_w))


def _terms_of_time(gpus: ArrayLike, speed: ArrayLike) -> FloatArray:
    n, x = np.broadcast_arrays(np.asarray(gpus, dtype=np.float64), np.asarray(speed, dtype=np.float64))
    return np.stack([np.ones(n.shape), 1 / x, (n - 1) / n], axis=-1)


def _terms_of_power(speed: ArrayLike) -> FloatArray:
    x = np.asarray(speed, dtype=np.float64)
    return np.stack([np.ones(x.shape), x, x**3], axis=-1)


def _solve(terms: FloatArray, measured: ArrayLike) -> tuple[float, float, float]:
    values = np.asarray(measured, dtype=np.float64)
    if terms.ndim != 2 or values.shape != terms.shape[:1] or not values.size:
        raise InputError(
            column="pre-run",
            found=f"{values.shape} measurements at points of shape {terms.shape[:-1]}",
            expected="one measurement a point, at least one",
            action="Measure every point once.",
        )
    # Relative errors count: a slow clock has no more say than a fast one.
    a, b, c = nnls(terms / values[:, None], np.ones(len(values)))[0]
    return float(a), float(b), float(c)
