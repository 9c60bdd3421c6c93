"""What PowerFlow believes of jobs: times and energies for every number of GPUs and clock, from a short pre-run each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heshare.policies.allocation.fitted import FloatArray, StepEnergy, StepTime, fit_energy, fit_time
from heshare.policies.allocation.moves import Menu
from heshare.prediction.predictor import Predictor
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.training import efficiency
from heshare.world.workload import Workload


class Models:
    """Fitted times and energies of a step of each workload on each type of GPU; each pre-run is done once.

    Args:
        predictor: what measures the pre-run, the same as every policy's: on one GPU, and on two by how the workload
            scales.
        pre_run_clocks: clocks of a pre-run, spread evenly between the lowest and the card's top one.
        clocks: clocks that a plan may choose among, spread evenly; one is the highest alone.
        floor: the lowest clock, over the card's top one.
        ceiling: the highest clock of a plan, over the card's top one.
    """

    def __init__(self, predictor: Predictor, pre_run_clocks: int, clocks: int, floor: float, ceiling: float) -> None:
        self._predictor, self._points, self._clocks = predictor, pre_run_clocks, clocks
        self._floor, self._ceiling = floor, ceiling
        self._fitted: dict[tuple[Workload, Gpu], tuple[StepTime, StepEnergy]] = {}
        self._one: dict[tuple[Workload, int, tuple[int, ...], Gpu], tuple[FloatArray, FloatArray]] = {}
        self._grids: dict[Gpu, tuple[int, ...]] = {}

    def clocks_mhz(self, gpu: Gpu) -> tuple[int, ...]:
        """The clocks that a plan chooses among, ascending, MHz."""
        if gpu not in self._grids:
            self._grids[gpu] = spread(self._range(gpu, self._ceiling), self._clocks)
        return self._grids[gpu]

    def fitted(self, workload: Workload, gpu: Gpu) -> tuple[StepTime, StepEnergy]:
        """The models of one workload on one type of GPU."""
        if (workload, gpu) not in self._fitted:
            clocks = spread(self._range(gpu, 1.0), self._points)
            speed = np.array(clocks) / gpu.max_mhz
            runs = [self._predictor.solo([workload], gpu, mhz) for mhz in clocks]
            alone_s = np.array([run.time_s[0, 0] for run in runs])
            # On two GPUs, at the top clock alone: the exchange is believed not to depend on the clock.
            gpus, speeds = [1] * len(clocks) + [2], np.append(speed, speed[-1])
            steps_s = np.append(alone_s, alone_s[-1] / efficiency(workload, 2))
            energy = fit_energy(alone_s, speed, alone_s * [run.power_w[0] for run in runs])
            self._fitted[workload, gpu] = fit_time(gpus, speeds, steps_s), energy
        return self._fitted[workload, gpu]

    def alone_s(self, task: Task, gpu: Gpu) -> float:
        """Seconds per iteration of a task on the GPUs that it asks for, at the highest clock."""
        return float(self._of_one(task, gpu, (task.gpus,))[0][0, -1])

    def menu(self, task: Task, left: float, gpu: Gpu, widths: tuple[int, ...], held: Sequence[int]) -> Menu:
        """What a task may be given on one type of GPU, and what is believed to come of it.

        Args:
            task: the task.
            left: iterations of its own still to do.
            gpu: the type.
            widths: numbers of GPUs, ascending.
            held: how many GPUs each of them takes from those that are free.
        """
        time_s, energy_j = self._of_one(task, gpu, widths)
        return Menu(tuple(held), left * time_s, left * energy_j)

    def _of_one(self, task: Task, gpu: Gpu, widths: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Time, s, and energy, J, of one iteration of a task, shape (w, c)."""
        key = task.workload, task.gpus, widths, gpu
        if key not in self._one:
            time, energy = self.fitted(task.workload, gpu)
            speed = np.array(self.clocks_mhz(gpu)) / gpu.max_mhz
            gpus = np.array(widths)[:, None]
            # On the GPUs that it asks for, an iteration takes what the device says of a step; on others, its share.
            as_asked = float(time.at(1, 1.0) / time.at(task.gpus, 1.0)) * task.gpus
            step_s = time.at(gpus, speed)
            self._one[key] = step_s * as_asked / gpus, as_asked * energy.at(step_s, speed)
        return self._one[key]

    def _range(self, gpu: Gpu, ceiling: float) -> list[int]:
        """The clocks between the lowest and a highest one, both over the card's top one; at least one."""
        inside = [
            mhz for mhz in gpu.clocks_mhz if self._floor * gpu.max_mhz - 1e-9 <= mhz <= ceiling * gpu.max_mhz + 1e-9
        ]
        return inside or [min(gpu.clocks_mhz, key=lambda mhz: abs(mhz - ceiling * gpu.max_mhz))]


def spread(clocks_mhz: Sequence[int], points: int) -> tuple[int, ...]:
    """So many clocks of a grid, MHz, evenly spread, the highest among them, ascending; at most all of them."""
    places = np.linspace(len(clocks_mhz) - 1, 0, min(points, len(clocks_mhz)))
    return tuple(sorted({clocks_mhz[round(place)] for place in places}))
