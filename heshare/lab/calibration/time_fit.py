"""Fit of the time constants of one workload on one GPU to its measured iterations.

Each fit is a maximum a posteriori estimate on relative errors. Many measured points settle every constant; two points
settle a level and a slope, and the prior of all workloads settles the rest.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares, nnls

from heshare.devices.board_power import capped_clock_mhz, memory_slowdown_at
from heshare.devices.constants import Power, Timing
from heshare.devices.iteration_time import BATCH_EXPONENT, OVERLAP, SM_TIME_ONLY, WorkPower, iteration_at
from heshare.lab.calibration.measurements import TimeRows
from heshare.shared.arrays import FloatArray

PARAMETERS = ("latency_s", "work_s", "fill_s", "memory_s", "work_per_sample_s", "host_s")
"""Names of the log-parameters, in the order of the fit."""

NOISE = 0.02
"""Relative noise of a measured time."""

_TINY_S = 1e-7
_ROUNDS = 4


@dataclass(frozen=True)
class Prior:
    """Prior of a workload's constants, before its measurements.

    Attributes:
        memory_s: time per sample that waits for memory, s; None: 15 % of the slope.
        host_s: time of the host, s; None: no host part.
        base: SM time that does not depend on the inference batch size, over the fixed latency.
        fill: time of a batch too small to fill the SMs, over the fixed latency.
        spread: standard deviations of the logarithms of (memory, host, base, fill).
    """

    memory_s: float | None = None
    host_s: float | None = None
    base: float = 0.4
    fill: float = 1.0
    spread: tuple[float, float, float, float] = (0.35, 0.5, 0.8, 0.8)


@dataclass(frozen=True)
class FittedTiming:
    """One workload's constants, the relative standard uncertainty of each, by name, and their source."""

    timing: Timing
    spread: Mapping[str, float]
    source: str


@dataclass(frozen=True)
class ThrottledGpu:
    """A GPU whose limit, W, may have lowered the clock; `draws`: power by inference batch size."""

    power: Power
    max_mhz: float
    cap_w: float
    draws: Callable[[int], WorkPower] = lambda _: SM_TIME_ONLY

    def slowdowns(self, timing: Timing, rows: TimeRows) -> tuple[FloatArray, FloatArray]:
        """Return the factors on SM and memory time of each row, (n,), at the locked clock or that of the limit."""
        top = self.max_mhz
        iterations = [
            iteration_at(timing, int(batch), share, draws=self.draws(int(batch)))
            for batch, share in zip(rows.batch, rows.share, strict=True)
        ]
        clocks = [
            capped_clock_mhz(self.power, [own], self.cap_w, top, top) if math.isnan(locked) else locked
            for own, locked in zip(iterations, rows.sm_mhz, strict=True)
        ]
        return top / np.array(clocks), np.array([memory_slowdown_at(self.power, clock) for clock in clocks])


def fit_timing(
    rows: TimeRows,
    prior: Prior,
    gpu: ThrottledGpu | None = None,
    source: str = "",
    *,
    further: Callable[[FloatArray], FloatArray] | None = None,
) -> FittedTiming:
    """Return the constants of one workload on one GPU, from its measured iterations alone and its prior.

    `gpu` is given if its power limit may have throttled the measurements; otherwise they all ran at the top clock.
    `further` returns errors over their noise of other measurements, from the log-parameters.
    """
    q = start(rows, prior)
    memory_s = math.exp(q[3]) if prior.memory_s is None else prior.memory_s
    slow = stalled = np.ones(len(rows))

    def residuals(q: FloatArray) -> FloatArray:
        time_s = _gpu_s(q, rows, slow, stalled)
        if prior.host_s is not None:
            # Not `overlap_arrays`: its last bits differ, and with them the fitted constants.
            time_s = (np.exp(q[5]) ** OVERLAP + time_s**OVERLAP) ** (1.0 / OVERLAP)
        others = np.empty(0) if further is None else further(q)
        return np.concatenate([np.log(time_s / rows.time_s) / NOISE, deviations(q, prior, memory_s), others])

    # The clocks depend on the constants and the constants on the clocks, so both are found in turn.
    for _ in range(1 if gpu is None else _ROUNDS):
        solved = least_squares(residuals, q, bounds=(math.log(_TINY_S) - 3, 3), method="trf")
        q = solved.x
        if gpu is not None:
            slow, stalled = gpu.slowdowns(_timing(q), rows)
    # Relative standard uncertainty of a time: larger where few points leave few residuals.
    spread = float(np.sqrt(np.mean((solved.fun[: len(rows)] * NOISE) ** 2)))
    timing = replace(
        _timing(q),
        anchored=True,
        uncertainty=max(0.02, spread, 0.1 / math.sqrt(len(rows))),
        batch_low=int(rows.batch.min()),
        batch_high=int(rows.batch.max()),
        share_low=float(rows.share.min()),
    )
    jacobian = np.asarray(solved.jac, dtype=np.float64)
    information = jacobian.T @ jacobian + 1e-9 * np.eye(len(q))
    sigma = np.sqrt(np.diag(np.linalg.inv(information)))
    return FittedTiming(timing, {name: float(value) for name, value in zip(PARAMETERS, sigma, strict=False)}, source)


def constants_of(timing: Timing) -> FloatArray:
    return np.array([getattr(timing, name) for name in PARAMETERS])


def times_s(timing: Timing, rows: TimeRows, gpu: ThrottledGpu | None = None) -> FloatArray:
    """Return the modelled seconds per iteration of each row, shape (n,)."""
    slowdowns = [(1.0, 1.0)] * len(rows) if gpu is None else zip(*gpu.slowdowns(timing, rows), strict=True)
    times = [
        iteration_at(timing, int(batch), share).time_s(slow, stalled)
        for batch, share, (slow, stalled) in zip(rows.batch, rows.share, slowdowns, strict=True)
    ]
    return np.array(times)


def _gpu_s(q: FloatArray, rows: TimeRows, slow: FloatArray, stalled: FloatArray) -> FloatArray:
    """GPU part for log-parameters q = log(latency, base, fill, memory, work per sample), s, shape (n,)."""
    latency, base, fill, memory, work = np.exp(q[:5])
    batch = work * rows.batch / rows.share
    # Not `filled_arrays`: its last bits differ.
    sms = base / rows.share + (batch**BATCH_EXPONENT + fill**BATCH_EXPONENT) ** (1.0 / BATCH_EXPONENT)
    return np.asarray(latency + memory * rows.batch * stalled + slow * sms, dtype=np.float64)


def start(rows: TimeRows, prior: Prior) -> FloatArray:
    """Return a first guess of the log-parameters, from a straight line in the inference batch size over the share."""
    size = rows.batch / rows.share
    columns = np.c_[np.ones(len(rows)), size]
    (level, slope), _ = nnls(columns / rows.time_s[:, None], np.ones(len(rows)))
    level, slope = max(level, 0.1 * float(rows.time_s.min())), max(slope, 1e-2 * float((rows.time_s / size).min()))
    memory = 0.15 * slope if prior.memory_s is None else min(prior.memory_s, 0.6 * slope)
    latency = level / (1.0 + prior.base + prior.fill)
    guess = [latency, prior.base * latency, prior.fill * latency, memory, slope - memory]
    if prior.host_s is not None:
        guess = [0.2 * value for value in guess[:3]] + [*guess[3:], prior.host_s]
    return np.log(np.maximum(guess, _TINY_S))


def deviations(q: FloatArray, prior: Prior, memory_s: float) -> FloatArray:
    """Return how far log-parameters are from a prior, over its spread; `memory_s`: where it has no memory time."""
    spread = prior.spread
    values = [
        (q[3] - math.log(prior.memory_s or memory_s)) / spread[0],
        (q[1] - q[0] - math.log(prior.base)) / spread[2],
        (q[2] - q[0] - math.log(prior.fill)) / spread[3],
    ]
    if prior.host_s is not None:
        values.append((q[5] - math.log(prior.host_s)) / spread[1])
    return np.array(values)


def _timing(q: FloatArray) -> Timing:
    latency, base, fill, memory, work = (float(value) for value in np.exp(q[:5]))
    host = float(math.exp(q[5])) if len(q) > 5 else 0.0
    return Timing(latency, memory, base, work, fill_s=fill, host_s=host)
