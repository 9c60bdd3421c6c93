"""Fit of taking turns on the SMs: times of one and of two processes of a workload on one A100.

Alone, a workload whose host is slow says little about how long it keeps the GPU busy; two processes of it do. So the
constants of taking turns (`memory` and `busy` of `heshare.devices.constants.Contention`) and the times of all workloads
are fitted together. `sharpness`, of which these times say little, comes from the pairs (`contention_fit`).
`stretch_arrays` is the compiled form of `heshare.devices.crowding` for many sets of residents at once.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numba import njit
from scipy.optimize import least_squares

from heshare.devices.constants import Contention
from heshare.devices.iteration_time import BATCH_EXPONENT, OVERLAP, overlap_arrays
from heshare.lab.calibration import time_fit
from heshare.lab.calibration.measurements import EAGER_MODELS, EAGER_RECORD, TimeRows, kernel_counts, time_rows
from heshare.lab.calibration.time_fit import FittedTiming, fit_timing
from heshare.lab.calibration.timing_constants import EAGER_SOURCE, eager_prior
from heshare.shared.arrays import FloatArray, IntArray

GPU = "A100"
TWO_PROCESS_MODELS = tuple(sorted(set(EAGER_MODELS) - {"densenet169", "inceptionv3"}))
"""Workloads whose record of two processes on one A100 has no implausible rows."""
CROWDING = ("memory", "busy")
"""Names of the constants of taking turns that the times of two processes settle."""

_NOISE = 0.03
"""Relative noise of a time of two processes."""
_START, _LOW, _HIGH = (0.7, 0.2), (0.2, 0.01), (1.0, 1.0)
_STEPS, _STEP = 25, 1e-5


def two_process_rows(workload: str) -> TimeRows:
    return time_rows(GPU, workload, EAGER_RECORD, processes=2)


def copies_s(
    constants: FloatArray,
    batch: FloatArray,
    copies: FloatArray,
    kernels: FloatArray,
    contention: Contention,
    share: FloatArray | float = 1.0,
) -> FloatArray:
    """Return the seconds per iteration of each of several equal processes of one workload, shape (n,).

    The time constants of the workload of each row are in the order of `time_fit.PARAMETERS`, s, (n, 6); inference batch
    sizes, numbers of processes, kernels of an iteration and shares of the SMs of each process (0 to 1) are (n,).
    """
    latency, base, fill, memory, per_sample, host = constants.T
    work = per_sample * batch
    sms = base / share + ((work / share) ** BATCH_EXPONENT + fill**BATCH_EXPONENT) ** (1.0 / BATCH_EXPONENT)
    gpu = latency + memory * batch + sms
    waits = contention.memory * memory * batch + contention.busy * (latency + fill)
    present = np.arange(int(copies.max())) < copies[:, None]
    busy, hosts, gpus = (
        np.where(present, part[:, None], other)
        for part, other in ((base + work + share * waits, 0.0), (host, 1.0), (gpu, 1.0))
    )
    busy[:, 0] = base + work + np.minimum(1.0, (copies - 1.0) * share) * waits
    crowding = stretch_arrays(contention.sharpness, busy, hosts, gpus)
    others = (copies - 1.0) * gpu / overlap_arrays(host, gpu)
    waits_s = contention.wait_s * kernels * others
    return overlap_arrays(host, gpu * crowding * (1.0 + contention.strength * others) + waits_s)


def fit_crowding(contention: Contention, rows: Mapping[str, TimeRows]) -> Contention:
    """Return `contention` with the constants of taking turns that fit times of two processes, and times alone, best."""
    search = _JointFit(contention, rows)
    low, high = np.full(len(search.start), math.log(1e-9)), np.full(len(search.start), 3.0)
    low[-len(CROWDING) :], high[-len(CROWDING) :] = np.log(_LOW), np.log(_HIGH)

    def residuals(q: FloatArray) -> FloatArray:
        return np.concatenate(search.errors(q))

    solved = least_squares(
        residuals, search.start, jac=search.slopes, bounds=(low, high), loss="soft_l1", f_scale=2.0, max_nfev=_STEPS
    )
    return search.contention(solved.x)


def left_out_fits(contention: Contention, rows: Mapping[str, TimeRows]) -> dict[str, Contention]:
    return {
        name: fit_crowding(contention, {other: part for other, part in rows.items() if other != name}) for name in rows
    }


class _JointFit:
    """Errors of the times of all workloads, alone and two at once, by their constants and those of taking turns.

    The log-parameters are those of one workload after the other, `time_fit.PARAMETERS` each, then those of `CROWDING`.
    """

    def __init__(self, contention: Contention, rows: Mapping[str, TimeRows]) -> None:
        names = sorted(rows)
        alone = [time_rows(GPU, name, EAGER_RECORD) for name in names]
        parts = [*alone, *(rows[name] for name in names)]
        numbers = [*range(len(names))] * 2
        self._workload = np.repeat(numbers, [len(part) for part in parts])
        self._copies = np.repeat([1.0] * len(names) + [2.0] * len(names), [len(part) for part in parts])
        self._batch, self._time_s = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("batch", "time_s")
        )
        self._kernels = np.array([kernel_counts()[name] for name in names])[self._workload]
        self._noise = np.where(self._copies > 1.0, _NOISE, time_fit.NOISE)
        self._priors = [eager_prior(name) for name in names]
        self._first = np.array([time_fit.start(part, prior) for part, prior in zip(alone, self._priors, strict=True)])
        self._within = contention
        self.start = np.concatenate([self._first.ravel(), np.log(_START)])

    def contention(self, q: FloatArray) -> Contention:
        return replace(self._within, **dict(zip(CROWDING, np.exp(q[-len(CROWDING) :]).tolist(), strict=True)))

    def errors(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return errors of the times over their noise, (n,), and deviations from the priors, (4 workloads,)."""
        logs = q[: -len(CROWDING)].reshape(self._first.shape)
        constants = np.exp(logs)[self._workload]
        modelled_s = copies_s(constants, self._batch, self._copies, self._kernels, self.contention(q))
        deviations = [
            time_fit.deviations(row, prior, math.exp(first[3]))
            for row, prior, first in zip(logs, self._priors, self._first, strict=True)
        ]
        return np.log(modelled_s / self._time_s) / self._noise, np.concatenate(deviations)

    def slopes(self, q: FloatArray) -> FloatArray:
        """Return finite differences of `errors`, (n + 4 workloads, parameters).

        One constant of all workloads moves at once, since no workload sees another's.
        """
        here, (workloads, width) = self.errors(q), self._first.shape
        rows, prior_rows = np.arange(len(self._batch)), len(self._batch) + np.arange(len(here[1]))
        slopes = np.zeros((len(rows) + len(prior_rows), len(q)))
        for column in range(width):
            places = np.arange(workloads) * width + column
            of_times, of_priors = self._change(q, places, here)
            slopes[rows, places[self._workload]] = of_times
            slopes[prior_rows, np.repeat(places, len(prior_rows) // workloads)] = of_priors
        for place in range(workloads * width, len(q)):
            slopes[rows, place] = self._change(q, np.array([place]), here)[0]
        return slopes

    def _change(self, q: FloatArray, places: IntArray, here: tuple[FloatArray, FloatArray]) -> list[FloatArray]:
        moved = q.copy()
        moved[places] += _STEP
        return [(new - old) / _STEP for new, old in zip(self.errors(moved), here, strict=True)]


def fit_with_copies(workload: str, contention: Contention, rows: TimeRows) -> FittedTiming:
    def further(q: FloatArray) -> FloatArray:
        return np.log(two_processes_s(workload, np.exp(q), rows, contention) / rows.time_s) / _NOISE

    alone, beside = time_rows(GPU, workload, EAGER_RECORD), further if len(rows) else None
    return fit_timing(alone, eager_prior(workload), source=EAGER_SOURCE, further=beside)


def fit_eager_timings(contention: Contention) -> dict[str, FittedTiming]:
    """Return the workloads of the eager record on the A100, with their host times; it never met its power limit."""
    rows = {name: two_process_rows(name) for name in EAGER_MODELS}
    plausible = {name: own.where(np.full(len(own), name in TWO_PROCESS_MODELS)) for name, own in rows.items()}
    return {name: fit_with_copies(name, contention, own) for name, own in plausible.items()}


def two_processes_s(workload: str, constants: FloatArray, rows: TimeRows, contention: Contention) -> FloatArray:
    """Return the seconds per iteration of each of two processes, (n,); `constants` as `time_fit.PARAMETERS`."""
    count = len(rows)
    kernels = np.full(count, kernel_counts()[workload])
    each = np.broadcast_to(constants, (count, len(constants)))
    return copies_s(each, rows.batch, np.full(count, 2.0), kernels, contention)


_NEWTON_STEPS = 60
_EXACT = 1e-13


@njit(cache=True)
def stretch_arrays(sharpness: float, busy: FloatArray, host: FloatArray, gpu: FloatArray) -> FloatArray:
    """Return the stretch of one resident of each of n sets of at most k residents, shape (n,).

    `busy` is v (work_j + z_j wait_j) of each resident in the equation of that one, 0 beyond a set; `host` and `gpu` are
    their parts of an iteration; s, (n, k).
    """
    found = np.empty(len(busy))
    for row in range(len(busy)):
        found[row] = _stretch(sharpness, busy[row], host[row], gpu[row])
    return found


@njit(cache=True)
def _stretch(p: float, busy: FloatArray, host: FloatArray, gpu: FloatArray) -> float:
    """Return the root c of the equation of `heshare.devices.crowding`, by Newton's method between bounds."""
    total = powers = 0.0
    for place in range(len(busy)):
        alone = busy[place] / gpu[place]
        total, powers = total + alone, powers + alone**p
    low, high = 0.0, np.log1p(max(0.0, total**p - powers)) / p

    log_c = high
    for _ in range(_NEWTON_STEPS):
        c = np.exp(log_c)
        total = powers = slope_total = slope_powers = 0.0
        for place in range(len(busy)):
            if busy[place] > 0.0:
                gpu_s = c * gpu[place]
                longer, shorter = max(host[place], gpu_s), min(host[place], gpu_s)
                time_s = longer * (1.0 + (shorter / longer) ** OVERLAP) ** (1.0 / OVERLAP)
                rho, falls = busy[place] / time_s, (gpu_s / time_s) ** OVERLAP
                power = rho**p
                total, powers = total + rho, powers + power
                slope_total, slope_powers = slope_total + rho * falls, slope_powers + power * falls

        left = np.exp(-p * log_c)
        value = 1.0 - left - (total**p - powers)
        if value > 0.0:
            high = log_c
        else:
            low = log_c
        slope = p * (left + total ** (p - 1.0) * slope_total - slope_powers)

        # Constants far off, as a fit tries them, leave no slope: those take the middle of the bounds.
        new = log_c - value / slope if slope > 0.0 else -1.0
        if not low <= new <= high:
            new = 0.5 * (low + high)

        if abs(new - log_c) <= _EXACT:
            return float(np.exp(new))
        log_c = new
    return float(np.exp(log_c))
