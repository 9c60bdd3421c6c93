"""Fit where the time of an iteration goes, one workload on one GPU at a time.

Each fit is a maximum a posteriori estimate on relative errors: many measured points settle every constant by
themselves, two points settle a level and a slope and leave the rest to what is known of all workloads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares, nnls

from heshare.devices.calibration.data import FloatArray, Rows
from heshare.devices.constants import Power, Timing
from heshare.devices.power import clock_under, stall
from heshare.devices.timing import OVERLAP, fold

PARAMETERS = ("latency_s", "work_s", "fill_s", "memory_s", "work_per_sample_s", "host_s")
"""Names of the log-parameters, in the order of the fit."""

_NOISE = 0.02
_TINY = 1e-7
_ROUNDS = 4


@dataclass(frozen=True)
class Prior:
    """What is known of a workload before its measurements.

    Attributes:
        memory_s: time per sample that waits for memory, s; None: 15 % of the slope.
        host_s: time of the host, s; None: no host part.
        base: SM time whatever the inference batch size, over the fixed latency.
        fill: time of a batch too small to fill the SMs, over the fixed latency.
        spread: standard deviations of the logarithms of (memory, host, base, fill).
    """

    memory_s: float | None = None
    host_s: float | None = None
    base: float = 0.5
    fill: float = 1.0
    spread: tuple[float, float, float, float] = (0.35, 0.5, 0.8, 0.8)


@dataclass(frozen=True)
class Card:
    """What throttles the card that the measurements were taken on: its power constants, top clock and limit."""

    power: Power
    max_mhz: float
    cap_w: float

    def clocks(self, timing: Timing, rows: Rows) -> FloatArray:
        """The clock that each row was measured at, MHz, shape (n,): locked, or what the power limit leaves."""
        reached = [
            clock if not math.isnan(clock) else self._free(timing, int(batch), share)
            for batch, share, clock in zip(rows.batch, rows.share, rows.sm_mhz, strict=True)
        ]
        return np.array(reached)

    def _free(self, timing: Timing, batch: int, share: float) -> float:
        return clock_under(self.power, [fold(timing, batch, share)], self.cap_w, self.max_mhz, self.max_mhz)


def gpu_time_s(q: FloatArray, rows: Rows, slow: FloatArray, stalled: FloatArray) -> FloatArray:
    """GPU part for log-parameters q = log(latency, base, fill, memory, work per sample), shape (n,)."""
    latency, base, fill, memory, work = np.exp(q[:5])
    sms = base / rows.share + np.hypot(work * rows.batch / rows.share, fill)
    return np.asarray(latency + memory * rows.batch * stalled + slow * sms, dtype=np.float64)


def _start(rows: Rows, prior: Prior) -> FloatArray:
    """First guess of the log-parameters, from a straight line in the inference batch size over the share."""
    size = rows.batch / rows.share
    columns = np.c_[np.ones(len(rows)), size]
    (level, slope), _ = nnls(columns / rows.time_s[:, None], np.ones(len(rows)))
    level, slope = max(level, 0.1 * float(rows.time_s.min())), max(slope, 1e-2 * float((rows.time_s / size).min()))
    memory = 0.15 * slope if prior.memory_s is None else min(prior.memory_s, 0.6 * slope)
    latency = level / (1.0 + prior.base + prior.fill)
    guess = [latency, prior.base * latency, prior.fill * latency, memory, slope - memory]
    if prior.host_s is not None:
        guess = [0.2 * value for value in guess[:3]] + [*guess[3:], prior.host_s]
    return np.log(np.maximum(guess, _TINY))


def _residuals(
    q: FloatArray, rows: Rows, prior: Prior, clock: tuple[FloatArray, FloatArray], memory: float
) -> FloatArray:
    time_s = gpu_time_s(q, rows, *clock)
    if prior.host_s is not None:
        time_s = (np.exp(q[5]) ** OVERLAP + time_s**OVERLAP) ** (1.0 / OVERLAP)
    spread = prior.spread
    known = [
        (q[3] - math.log(memory)) / spread[0],
        (q[1] - q[0] - math.log(prior.base)) / spread[2],
        (q[2] - q[0] - math.log(prior.fill)) / spread[3],
    ]
    if prior.host_s is not None:
        known.append((q[5] - math.log(prior.host_s)) / spread[1])
    return np.concatenate([np.log(time_s / rows.time_s) / _NOISE, np.array(known)])


@dataclass(frozen=True)
class Fitted:
    """One workload's constants and how far the measurements settle them.

    Attributes:
        timing: the constants.
        spread: relative standard uncertainty of each, by name (from the curvature of the fit).
        source: where they come from.
    """

    timing: Timing
    spread: Mapping[str, float]
    source: str


def fit(rows: Rows, prior: Prior, card: Card | None = None, source: str = "") -> Fitted:
    """Constants of one workload on one GPU.

    Args:
        rows: its measured iterations.
        prior: what is known besides.
        card: what may have throttled the measurements; None: they all ran at the top clock.
        source: where the rows come from.
    """
    q = _start(rows, prior)
    memory = math.exp(q[3]) if prior.memory_s is None else prior.memory_s
    slow = stalled = np.ones(len(rows))
    for _ in range(1 if card is None else _ROUNDS):
        solved = least_squares(
            _residuals, q, bounds=(math.log(_TINY) - 3, 3), args=(rows, prior, (slow, stalled), memory), method="trf"
        )
        q = solved.x
        if card is not None:
            clocks = card.clocks(_timing(q), rows)
            slow = card.max_mhz / clocks
            stalled = np.array([stall(card.power, clock) for clock in clocks])
    left = solved.fun[: len(rows)] * _NOISE
    timing = replace(_timing(q), anchored=True, uncertainty=_doubt(left))
    jacobian = np.asarray(solved.jac, dtype=np.float64)
    information = jacobian.T @ jacobian + 1e-9 * np.eye(len(q))
    sigma = np.sqrt(np.diag(np.linalg.inv(information)))
    return Fitted(timing, {name: float(value) for name, value in zip(PARAMETERS, sigma, strict=False)}, source)


def _doubt(left: FloatArray) -> float:
    """Relative standard uncertainty of a time, from the residuals: more where few points leave few residuals."""
    spread = float(np.sqrt(np.mean(left**2)))
    return max(0.02, spread, 0.1 / math.sqrt(len(left)))


def _timing(q: FloatArray) -> Timing:
    latency, base, fill, memory, work = (float(value) for value in np.exp(q[:5]))
    host = float(math.exp(q[5])) if len(q) > 5 else 0.0
    return Timing(latency, memory, base, work, fill_s=fill, host_s=host)


def times_s(timing: Timing, rows: Rows, card: Card | None = None) -> FloatArray:
    """Modelled seconds per iteration of each row, shape (n,)."""
    if card is None:
        clocks = [(1.0, 1.0)] * len(rows)
    else:
        clocks = [(card.max_mhz / clock, stall(card.power, clock)) for clock in card.clocks(timing, rows)]
    answers = [
        fold(timing, int(batch), share).time_s(*clock)
        for batch, share, clock in zip(rows.batch, rows.share, clocks, strict=True)
    ]
    return np.array(answers)


def scaled(timing: Timing, *, work: float = 1.0, memory: float = 1.0, latency: float | None = None) -> Timing:
    """The same workload on another GPU: SM times, memory time and fixed latency multiplied, no longer anchored."""
    fixed = work if latency is None else latency
    return replace(
        timing,
        latency_s=timing.latency_s * fixed,
        memory_s=timing.memory_s * memory,
        work_s=timing.work_s * work,
        work_per_sample_s=timing.work_per_sample_s * work,
        fill_s=timing.fill_s * work,
        anchored=False,
    )
