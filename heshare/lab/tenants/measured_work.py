"""What an attempt at a command has shown beside what the device model has for the same conditions.

The device model is asked at every change, with the neighbours, shares and clock of that moment. So a time that was
measured beside others at a share is not taken for the time alone: the ratio of measured to modelled is what is learned.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from heshare.devices.device_model import co_run
from heshare.lab.tenants.tenant_power import nearest_clock
from heshare.shared.errors import InputError
from heshare.world.catalogue import memory_mib, paper_models
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

LEAST_S = 2.0
"""Time from which on an attempt shows power, s: counters and sensors are that slow (chosen)."""
_SAME_POWER = 0.1
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(slots=True)
class MeasuredWork:
    """What the GPU did while an attempt ran, in all: measured, and by the device model.

    Attributes:
        iterations: of the workload that it is planned as, by the model; NaN where the model does not know the GPU.
        ran_s: for how long, s.
        above_j, modelled_above_j: the energy of the GPU above idle, J.
    """

    iterations: float = 0.0
    ran_s: float = 0.0
    above_j: float = 0.0
    modelled_above_j: float = 0.0

    @classmethod
    def add_to(
        cls, works: Sequence["MeasuredWork"], gpu: Gpu, residents: Sequence[Resident], sm_mhz: float,
        spent_j: float, took_s: float,
    ) -> None:  # fmt: skip
        """Add a time in which these attempts, each with its resident, had the GPU, which used so much energy."""
        times_s, above_w, idle_w = modelled(gpu, tuple(residents), nearest_clock(gpu.clocks_mhz, sm_mhz))
        for work, time_s in zip(works, times_s, strict=True):
            work.iterations += took_s / time_s
            work.ran_s += took_s
            work.above_j += max(0.0, spent_j - idle_w * took_s)
            work.modelled_above_j += above_w * took_s

    @property
    def power_ratio(self) -> float:
        """Measured over modelled energy above idle; NaN where it is not known."""
        known = self.ran_s >= LEAST_S and self.modelled_above_j > 0.0
        return self.above_j / self.modelled_above_j if known else math.nan


@lru_cache(maxsize=4096)
def modelled(gpu: Gpu, residents: tuple[Resident, ...], sm_mhz: int) -> tuple[tuple[float, ...], float, float]:
    """Return the time of an iteration of each resident, s, and the GPU's power above idle and idle, W; or NaN."""
    try:
        found, idle_w = co_run(gpu, residents, sm_mhz), float(co_run(gpu, ()).power_w)
    except InputError:
        return (math.nan,) * len(residents), math.nan, math.nan
    return tuple(float(task.time_s) for task in found.tasks), float(found.power_w) - idle_w, idle_w


def nearest_workload(
    gpu: Gpu, planned: Resident, sm_mhz: float, ratio: float, *, kept: Workload, need_mib: float, most_mib: float
) -> Workload:
    """Return the workload of Table IV whose power alone is nearest to `ratio` times that of the planned one.

    `kept` stays if it is within 10 %, or the ratio is not known. Others need `need_mib` to `most_mib` of memory.
    """
    clock = nearest_clock(gpu.clocks_mhz, sm_mhz)
    target_w = ratio * modelled(gpu, (planned,), clock)[1]

    def error_w(workload: Workload) -> float:
        above_w = modelled(gpu, (Resident(workload, planned.mps_pct),), clock)[1]
        return math.inf if math.isnan(above_w) else abs(above_w - target_w)

    if math.isnan(target_w) or error_w(kept) <= _SAME_POWER * target_w:
        return kept
    return min((kept, *_workloads_of(kept.precision, need_mib, most_mib)), key=error_w)


@lru_cache(maxsize=256)
def _workloads_of(precision: str, need_mib: float, most_mib: float) -> tuple[Workload, ...]:
    tried = [
        Workload(model.name, batch, precision)
        for model in paper_models().values()
        for batch in {*_BATCHES, max(1, math.ceil((need_mib - model.memory_fixed_mib) / model.memory_per_sample_mib))}
    ]
    return tuple(sorted(one for one in tried if need_mib <= memory_mib(one) <= most_mib))


def time_ratio(gpu: Gpu, planned: Resident, sm_mhz: float, workload: Workload) -> float:
    """Return how many iterations of another workload take as long as one of the planned one, alone at its share."""
    clock = nearest_clock(gpu.clocks_mhz, sm_mhz)
    other = Resident(workload, planned.mps_pct)
    return modelled(gpu, (planned,), clock)[0][0] / modelled(gpu, (other,), clock)[0][0]
