"""Toy device for runs that can be checked by hand, and its predictor."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from heshare.devices.device_model import Estimate, TaskEstimate
from heshare.devices.uncertainty import Uncertainty
from heshare.devices.virtual_device import VirtualDevice
from heshare.prediction.predictor import CoRuns, Predictor
from heshare.scheduling.objectives import Instance, make_instance
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload


def toy_gpu(name: str = "Toy", *, memory_mib: float = 32_768.0, clocks_mhz: tuple[int, ...] = (500, 1000)) -> Gpu:
    """Return a GPU with two clocks, 10 W idle, 110 W at most."""
    return Gpu(name, f"{name} card", "toy", 10, 640, memory_mib, 100.0, 4.0, 1.0, 110.0, 10.0, clocks_mhz)


class ToyDevice(VirtualDevice):
    """A device in virtual time whose tasks share it by time-slicing.

    With n residents an iteration takes n x base_s x top / clock. Power is the idle power with no resident, else idle
    power plus 100 W x clock / top; a subclass may override `power_w`. MPS percentages have no effect.

    Args:
        gpu: the GPU.
        base_s: time of an iteration alone at the top clock, s, of all models or by model.
    """

    provenance = "emulated"

    def __init__(self, gpu: Gpu, *, base_s: float | Mapping[str, float] = 1.0) -> None:
        super().__init__(gpu, provenance=self.provenance)
        self._base_s = base_s

    def power_w(self, mhz: float, residents: Sequence[Resident]) -> float:
        """Return the power at a clock with some residents, W."""
        return self.gpu.idle_w + (100.0 * mhz / self.gpu.max_mhz if residents else 0.0)

    def _estimate(self, sm_mhz: int | None, residents: tuple[Resident, ...]) -> Estimate:
        mhz = float(sm_mhz or self.gpu.max_mhz)
        tasks, nan = [], math.nan
        for resident in residents:
            model, batch_size = resident.workload.model, resident.workload.batch_size
            base_s = self._base_s if isinstance(self._base_s, float) else self._base_s[model]
            time_s = base_s * len(residents) * self.gpu.max_mhz / mhz
            tasks.append(TaskEstimate(model, batch_size, resident.mps_pct, time_s, nan, nan, nan, True, Uncertainty()))
        return Estimate(self.gpu.name, mhz, self.power_w(mhz, residents), tuple(tasks))


def toy_devices(cluster: Cluster) -> list[ToyDevice]:
    """Return a `ToyDevice` with one second an iteration for each GPU of a cluster."""
    return [ToyDevice(gpu) for gpu in cluster.gpus]


class ToyPredictor(Predictor):
    """A predictor of what a `ToyDevice` with the same `base_s` does."""

    def __init__(self, *, base_s: float | Mapping[str, float] = 1.0) -> None:
        self._base_s = base_s

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict sets of residents, each at a clock."""
        self.calls += sum(map(len, sets))
        time_s = np.full((len(sets), max(map(len, sets), default=0)), np.nan)
        power_w = np.full(len(sets), gpu.idle_w)
        for row, (residents, clock) in enumerate(zip(sets, sm_mhz, strict=True)):
            device = ToyDevice(gpu, base_s=self._base_s)
            device.set_clock(clock)
            for task, resident in enumerate(residents):
                device.start(task, resident.workload, resident.mps_pct)
            reading = device.read()
            time_s[row, : len(residents)] = [reading.residents[task].time_s for task in range(len(residents))]
            power_w[row] = reading.power_w
        return CoRuns(time_s, power_w)


def toy_instance(iterations: Sequence[float], gpus: int = 1) -> tuple[Instance, ToyPredictor]:
    """Return an instance of tasks of one workload with these iterations on equal toy GPUs, and its predictor."""
    tasks = [Task(number, Workload("resnet18", 4), work) for number, work in enumerate(iterations)]
    predictor = ToyPredictor()
    return make_instance(tasks, Cluster((toy_gpu(),) * gpus), predictor), predictor
