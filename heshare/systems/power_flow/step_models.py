"""Models of the time and energy of a training step, fitted by least squares to a short pre-run.

PowerFlow plans with them. A step on n GPUs at clock f takes

    t(n, f) = (fixed^q + (compute f_max / f)^q)^(1/q) + sync (n - 1) / n

- fixed: host work, which neither n nor f changes;
- compute: GPU work, which scales with the clock and overlaps with the host work;
- sync: the share of a ring all-reduce in the exchange of gradients.

On each GPU the step costs

    e(n, f) = static t(n, f) + steady + rising (f / f_max)^2

- static: power at any clock;
- steady, rising: work at a voltage that is flat at low clocks and then rises with the clock.

The abstract of PowerFlow names the terms (a gradient time that depends on the clock, a synchronisation time, static and
dynamic energy). These forms of the terms are assumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from heshare.arrays import FloatArray
from heshare.errors import InputError
from heshare.prediction.predictor import Predictor
from heshare.systems.power_flow.allocation import AllocationOptions
from heshare.systems.shared.training import scaling_efficiency
from heshare.world.gpu import Gpu, spread_clocks
from heshare.world.task import Task
from heshare.world.workload import Workload

SHARPNESS = (1.0, 2.0, 4.0, 8.0)
"""Exponents q to choose among, from one part after the other to both at once; assumed."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds per step of a job, as fitted.

    Attributes:
        fixed_s: time that neither the clock nor the number of GPUs changes, s.
        compute_s: GPU work at the top clock, s.
        sync_s: the exchange of gradients between very many GPUs, s.
        sharpness: the exponent q, how far the first two overlap.
    """

    fixed_s: float
    compute_s: float
    sync_s: float
    sharpness: float = 1.0

    def at(self, gpus: ArrayLike, speed: ArrayLike) -> FloatArray:
        """Return seconds per step.

        Args:
            gpus: number of GPUs.
            speed: the clock over the top clock.

        Returns:
            Of the shape to which the two broadcast.
        """
        n, x, q = np.asarray(gpus, dtype=np.float64), np.asarray(speed, dtype=np.float64), self.sharpness
        gradient_s = (self.fixed_s**q + (self.compute_s / x) ** q) ** (1 / q)
        return np.asarray(gradient_s + self.sync_s * (n - 1) / n)


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """Energy of one GPU for one step of a job, as fitted.

    Attributes:
        static_w: power at any clock, W.
        steady_j: energy of the work at the lowest voltage, J.
        rising_j: additional energy of the work at the top clock, J.
    """

    static_w: float
    steady_j: float
    rising_j: float

    def at(self, time_s: ArrayLike, speed: ArrayLike) -> FloatArray:
        """Return the energy, J, of a step that takes `time_s` at a clock over the top clock; of the shape of both."""
        x = np.asarray(speed, dtype=np.float64)
        return np.asarray(self.static_w * np.asarray(time_s) + self.steady_j + self.rising_j * x**2)


class StepModels:
    """Fitted times and energies of a step of each workload on each type of GPU; each pre-run is done once.

    Args:
        predictor: measures the pre-run, the same predictor as every policy's: on one GPU, and on two by how the
            workload scales.
        pre_run_clocks: clocks of a pre-run, spread evenly between the lowest and the card's top one.
        clocks: clocks that a plan may choose among, spread evenly; one is the highest alone.
        floor: the lowest clock, over the card's top one.
        ceiling: the highest clock of a plan, over the card's top one.
    """

    def __init__(self, predictor: Predictor, pre_run_clocks: int, clocks: int, floor: float, ceiling: float) -> None:
        self._predictor, self._pre_run_clocks, self._clocks = predictor, pre_run_clocks, clocks
        self._floor, self._ceiling = floor, ceiling
        self._fitted: dict[tuple[Workload, Gpu], tuple[StepTime, StepEnergy]] = {}
        self._iterations: dict[tuple[Workload, int, tuple[int, ...], Gpu], tuple[FloatArray, FloatArray]] = {}
        self._grids: dict[Gpu, tuple[int, ...]] = {}

    def clocks_mhz(self, gpu: Gpu) -> tuple[int, ...]:
        """Return the clocks that a plan chooses among, ascending, MHz."""
        if gpu not in self._grids:
            self._grids[gpu] = spread_clocks(self._range(gpu, self._ceiling), self._clocks)
        return self._grids[gpu]

    def fitted(self, workload: Workload, gpu: Gpu) -> tuple[StepTime, StepEnergy]:
        """Return the models of one workload on one type of GPU."""
        if (workload, gpu) not in self._fitted:
            clocks = spread_clocks(self._range(gpu, 1.0), self._pre_run_clocks)
            speed = np.array(clocks) / gpu.max_mhz
            runs = [self._predictor.solo([workload], gpu, mhz) for mhz in clocks]
            alone_s = np.array([run.time_s[0, 0] for run in runs])
            # On two GPUs at the top clock alone: the form of the exchange does not depend on the clock.
            gpus, speeds = [1] * len(clocks) + [2], np.append(speed, speed[-1])
            steps_s = np.append(alone_s, alone_s[-1] / scaling_efficiency(workload, 2))
            energy = fit_energy(alone_s, speed, alone_s * [run.power_w[0] for run in runs])
            self._fitted[workload, gpu] = fit_time(gpus, speeds, steps_s), energy
        return self._fitted[workload, gpu]

    def alone_s(self, task: Task, gpu: Gpu) -> float:
        """Return seconds per iteration of a task on as many GPUs as it requests, at the highest clock."""
        return float(self._iteration(task, gpu, (task.gpus,))[0][0, -1])

    def options(
        self, task: Task, left: float, gpu: Gpu, widths: tuple[int, ...], occupied: Sequence[int]
    ) -> AllocationOptions:
        """Return the allocations of a task on one type of GPU with their predicted times and energies.

        Args:
            task: the task.
            left: iterations that it has still to do.
            gpu: the type.
            widths: numbers of GPUs, ascending.
            occupied: how many free GPUs each of these numbers occupies, see `BuddyAllocator.occupied`.
        """
        time_s, energy_j = self._iteration(task, gpu, widths)
        return AllocationOptions(tuple(occupied), left * time_s, left * energy_j)

    def _iteration(self, task: Task, gpu: Gpu, widths: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return time, s, and energy, J, of one iteration of a task, shape (w, c)."""
        key = task.workload, task.gpus, widths, gpu
        if key not in self._iterations:
            time, energy = self.fitted(task.workload, gpu)
            speed = np.array(self.clocks_mhz(gpu)) / gpu.max_mhz
            gpus = np.array(widths)[:, None]
            # On the requested n GPUs an iteration takes a step's time on one GPU, as in the device model. On w GPUs the
            # same samples take t(w) / w relative to t(n) / n.
            work = float(time.at(1, 1.0) / time.at(task.gpus, 1.0)) * task.gpus
            step_s = time.at(gpus, speed)
            self._iterations[key] = step_s * work / gpus, work * energy.at(step_s, speed)
        return self._iterations[key]

    def _range(self, gpu: Gpu, ceiling: float) -> list[int]:
        """Return the clocks between the floor and a ceiling, both over the card's top clock; at least one."""
        inside = [
            mhz for mhz in gpu.clocks_mhz if self._floor * gpu.max_mhz - 1e-9 <= mhz <= ceiling * gpu.max_mhz + 1e-9
        ]
        return inside or [min(gpu.clocks_mhz, key=lambda mhz: abs(mhz - ceiling * gpu.max_mhz))]


def fit_time(gpus: ArrayLike, speed: ArrayLike, time_s: ArrayLike, /) -> StepTime:
    """Return the step time that fits measurements best: least squares of relative errors, no term below zero.

    Args:
        gpus: numbers of GPUs of the measurements, shape (m,).
        speed: their clocks over the top clock, shape (m,).
        time_s: seconds per step, shape (m,).

    Raises:
        InputError: no measurement on one GPU, or shapes that differ.
    """
    n, x, t = _columns(gpus, speed, time_s)
    one = n == 1
    _require_measurements(bool(one.any()), "no measurement on one GPU")
    fits = [_fit_one_gpu(x[one], t[one], q) for q in SHARPNESS]
    best = min(fits, key=lambda fit: float(np.sum((fit.at(1, x[one]) / t[one] - 1) ** 2)))
    sync_s = 0.0
    if not one.all():
        share = (n[~one] - 1) / n[~one]
        sync_s = max(0.0, float(share @ (t[~one] - best.at(1, x[~one])) / (share @ share)))
    return StepTime(best.fixed_s, best.compute_s, sync_s, best.sharpness)


def fit_energy(time_s: ArrayLike, speed: ArrayLike, energy_j: ArrayLike, /) -> StepEnergy:
    """Return the step energy that fits measurements best: least squares of relative errors, no term below zero.

    Args:
        time_s: seconds per step, shape (m,).
        speed: clocks over the top clock, shape (m,).
        energy_j: energy of one GPU for a step, J, shape (m,).

    Raises:
        InputError: no measurement, or shapes that differ.
    """
    t, x, e = _columns(time_s, speed, energy_j)
    return StepEnergy(*_least_squares(np.stack([t, np.ones(len(t)), x**2], axis=1), e))


def _fit_one_gpu(speed: FloatArray, time_s: FloatArray, sharpness: float) -> StepTime:
    """Return the fit on one GPU for a given exponent q, with which t^q is linear in the q-th powers of both terms."""
    terms = np.stack([np.ones(len(speed)), speed**-sharpness], axis=1)
    fixed, compute = _least_squares(terms, time_s**sharpness)
    return StepTime(fixed ** (1 / sharpness), compute ** (1 / sharpness), 0.0, sharpness)


def _least_squares(terms: FloatArray, values: FloatArray) -> list[float]:
    # Divided by the values, so that relative errors count: a slow clock has no more weight than a fast one.
    coefficients: list[float] = nnls(terms / values[:, None], np.ones(len(values)))[0].tolist()
    return coefficients


def _columns(*columns: ArrayLike) -> list[FloatArray]:
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    shapes = {array.shape for array in arrays}
    good = len(shapes) == 1 and arrays[0].ndim == 1 and arrays[0].size > 0
    _require_measurements(good, f"columns of shapes {sorted(shapes)}")
    return arrays


def _require_measurements(good: bool, found: str) -> None:
    if not good:
        raise InputError(
            found,
            "at least one measurement, each with all of its numbers, and one on one GPU",
            "Measure every point once.",
            column="pre-run",
        )
