"""Models of the time and energy of a training step, fitted by least squares to a short pre-run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from heshare.lab.systems.shared.training import scaling_efficiency
from heshare.prediction.predictor import Predictor
from heshare.shared.arrays import FloatArray
from heshare.world.gpu import Gpu, spread_clocks
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

SHARPNESS = (1.0, 2.0, 4.0, 8.0)
"""Exponents q to choose among, from one part after the other to both at once; assumed."""
PRE_RUN_CLOCKS = 5
"""Clocks of the pre-run that the models are fitted to, which takes no time here; assumed."""


# PowerFlow plans with these models. A step on n GPUs at clock f takes
#
#     t(n, f) = (fixed^q + (compute f_max / f)^q)^(1/q) + sync (n - 1) / n
#
# - fixed: host work, independent of n and f;
# - compute: GPU work, which scales with the clock and overlaps with the host work;
# - sync: the share of a ring all-reduce in the exchange of gradients.
#
# On each GPU the step costs
#
#     e(n, f) = static t(n, f) + steady + rising (f / f_max)^2
#
# - static: power at any clock;
# - steady, rising: work at a voltage that is flat at low clocks and then rises with the clock.
#
# The abstract of PowerFlow names the terms (a gradient time that depends on the clock, a synchronisation time, static
# and dynamic energy). These forms of the terms are assumed.


@dataclass(frozen=True, slots=True)
class StepModel:
    """Time and energy of a training step of a job, as fitted.

    Attributes:
        fixed_s: time that neither the clock nor the number of GPUs changes, s.
        compute_s: GPU work at the top clock, s.
        sync_s: the exchange of gradients between very many GPUs, s.
        sharpness: the exponent q, how far the first two overlap.
        static_w: power of a GPU at any clock, W.
        steady_j: energy of a GPU's work at the lowest voltage, J.
        rising_j: additional energy of that work at the top clock, J.
    """

    fixed_s: float
    compute_s: float
    sync_s: float
    sharpness: float
    static_w: float
    steady_j: float
    rising_j: float

    def time_s(self, gpus: ArrayLike, speed: ArrayLike) -> FloatArray:
        """Return seconds per step on a number of GPUs at a clock over the top clock; both broadcast."""
        n, x, q = np.asarray(gpus, dtype=np.float64), np.asarray(speed, dtype=np.float64), self.sharpness
        gradient_s = (self.fixed_s**q + (self.compute_s / x) ** q) ** (1 / q)
        return np.asarray(gradient_s + self.sync_s * (n - 1) / n)

    def energy_j(self, time_s: ArrayLike, speed: ArrayLike) -> FloatArray:
        """Return the energy, J, of one GPU for a step of `time_s` at a clock over the top clock; both broadcast."""
        x = np.asarray(speed, dtype=np.float64)
        return np.asarray(self.static_w * np.asarray(time_s) + self.steady_j + self.rising_j * x**2)


class StepModels:
    """Fitted models of a step of each workload on each type of GPU; each pre-run is done once.

    The pre-run is measured by the same predictor as every policy's: on one GPU, and on two by how the workload scales.
    All clocks are spread evenly, and those of a pre-run reach up to the card's top one.
    """

    def __init__(self, predictor: Predictor, clocks: int, floor: float, ceiling: float) -> None:
        self._predictor, self._clocks = predictor, clocks
        self._floor, self._ceiling = floor, ceiling
        self._fitted: dict[tuple[Workload, Gpu], StepModel] = {}
        self._iterations: dict[tuple[Workload, int, tuple[int, ...], Gpu], tuple[FloatArray, FloatArray]] = {}
        self._grids: dict[Gpu, tuple[int, ...]] = {}

    def clocks_mhz(self, gpu: Gpu) -> tuple[int, ...]:
        if gpu not in self._grids:
            self._grids[gpu] = spread_clocks(self._range(gpu, self._ceiling), self._clocks)
        return self._grids[gpu]

    def fitted(self, workload: Workload, gpu: Gpu) -> StepModel:
        if (workload, gpu) not in self._fitted:
            clocks = spread_clocks(self._range(gpu, 1.0), PRE_RUN_CLOCKS)
            runs = self._predictor.co_run([(Resident(workload),)] * len(clocks), gpu, clocks)
            alone_s = runs.time_s[:, 0]
            # On two GPUs at the top clock alone: the form of the exchange does not depend on the clock.
            pair_s = float(alone_s[-1] / scaling_efficiency(workload, 2))
            energy_j = alone_s * runs.power_w
            self._fitted[workload, gpu] = fit_step(np.array(clocks) / gpu.max_mhz, alone_s, energy_j, pair_s)
        return self._fitted[workload, gpu]

    def iteration(self, task: Task, gpu: Gpu, widths: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Return the time, s, and the energy, J, of an iteration of a task on numbers of GPUs at each clock, (w, c).

        `widths` are numbers of GPUs of one type, ascending.
        """
        key = task.workload, task.gpus, widths, gpu
        if key not in self._iterations:
            model = self.fitted(task.workload, gpu)
            speed = np.array(self.clocks_mhz(gpu)) / gpu.max_mhz
            gpus = np.array(widths)[:, None]
            # On the requested n GPUs an iteration takes a step's time on one GPU, as in the device model. On w GPUs the
            # same samples take t(w) / w relative to t(n) / n.
            work = float(model.time_s(1, 1.0) / model.time_s(task.gpus, 1.0)) * task.gpus
            step_s = model.time_s(gpus, speed)
            self._iterations[key] = step_s * work / gpus, work * model.energy_j(step_s, speed)
        return self._iterations[key]

    def _range(self, gpu: Gpu, ceiling: float) -> list[int]:
        inside = [
            mhz for mhz in gpu.clocks_mhz if self._floor * gpu.max_mhz - 1e-9 <= mhz <= ceiling * gpu.max_mhz + 1e-9
        ]
        return inside or [min(gpu.clocks_mhz, key=lambda mhz: abs(mhz - ceiling * gpu.max_mhz))]


def fit_step(speed: ArrayLike, time_s: ArrayLike, energy_j: ArrayLike, pair_s: float, /) -> StepModel:
    """Return the model that fits measurements best: least squares of relative errors, no term below zero.

    `speed` are clocks over the top clock, ascending, `time_s` and `energy_j` those of a step on one GPU at each, shape
    (m,); `pair_s` is the time on two GPUs at the last clock.
    """
    x, t, e = (np.asarray(column, dtype=np.float64) for column in (speed, time_s, energy_j))
    one = np.ones(len(x))
    energy = _least_squares([t, one, x**2], e)
    fits = []
    for q in SHARPNESS:
        # With the exponent q given, t^q is linear in the q-th powers of both terms.
        fixed, compute = _least_squares([one, x**-q], t**q)
        fits.append(StepModel(fixed ** (1 / q), compute ** (1 / q), 0.0, q, *energy))
    best = min(fits, key=lambda fit: float(np.sum((fit.time_s(1, x) / t - 1) ** 2)))
    # On two GPUs the step takes half of `sync` longer.
    return replace(best, sync_s=max(0.0, 2 * (pair_s - float(best.time_s(1, x[-1])))))


def _least_squares(terms: Sequence[FloatArray], values: FloatArray) -> list[float]:
    # Divided by the values, so that relative errors count: a slow clock has no more weight than a fast one.
    from scipy.optimize import nnls  # slow to import

    coefficients: list[float] = nnls(np.stack(terms, axis=1) / values[:, None], np.ones(len(values)))[0].tolist()
    return coefficients
