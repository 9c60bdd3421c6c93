"""The energy of a GPU divided among its tenants: idle energy equally, the rest by the power of each alone above idle.

That power is from the GPU's measured profile or from the device model.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from heshare.devices.constants import Constants
from heshare.devices.device_model import co_run
from heshare.profiles.schema import residents_of
from heshare.shared.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

RecordedPower = tuple[int, int, float]
"""MPS percentage, requested SM clock (MHz) and power above idle (W) of a workload measured alone."""


MODEL, EQUAL = "device model", "equal"
"""Ways of dividing energy: in proportion to the device model's power of each tenant alone, and equally."""


def split_energy(energy_j: float, idle_j: float, weights: Sequence[float]) -> list[float]:
    """Return the part of each tenant in the energy of a period in which the same tenants were on the GPU, J.

    Idle energy is divided equally among them; what the GPU used above it, in proportion to their weights. The parts sum
    to `energy_j`, up to rounding. Energy below `idle_j` is divided equally.

    Args:
        energy_j: the GPU's energy, as its counter has it, J.
        idle_j: what it would have used without them, J.
        weights: their power alone above idle, W, or anything proportional to it, at least 0, shape (n,). One that is
            not known, NaN, is taken to be the mean of the others. If none is known, or all are 0, all energy is divided
            equally. No tenants have no parts.

    Example:
        >>> split_energy(100.0, 40.0, [30.0, 10.0])
        [65.0, 35.0]
    """
    count = len(weights)
    known = [weight for weight in weights if not math.isnan(weight)]
    total = sum(known)
    if total <= 0.0:
        return [energy_j / count for _ in weights]
    mean = total / len(known)
    filled = [mean if math.isnan(weight) else weight for weight in weights]
    idle_j, sum_of_weights = min(idle_j, energy_j), sum(filled)
    return [idle_j / count + weight / sum_of_weights * (energy_j - idle_j) for weight in filled]


class TenantPower:
    """Power of workloads alone on a GPU, by which its energy is divided among its tenants.

    Where measurements of the workload alone on that type of GPU are given, the device model is scaled to the nearest of
    them in share and clock: at a recorded point the answer is the record's.

    Args:
        recorded: the measured power of workloads alone, by the GPU's name and workload.
        idle_w: the measured idle power by the GPU's name, W.
        constants: of the device model, if not the calibrated ones.
    """

    def __init__(
        self,
        recorded: Mapping[tuple[str, Workload], Sequence[RecordedPower]] | None = None,
        idle_w: Mapping[str, float] | None = None,
        constants: Constants | None = None,
    ) -> None:
        self._recorded, self._idle_w, self._constants = recorded or {}, dict(idle_w or {}), constants
        self._found: dict[tuple[Gpu, Resident, int], float] = {}

    @classmethod
    def of_profile(cls, table: pd.DataFrame) -> "TenantPower":
        """Return that of a table of the profile schema, of which only rows measured on real GPUs count."""
        measured = table[table["provenance"] == "measured"]
        recorded: defaultdict[tuple[str, Workload], list[RecordedPower]] = defaultdict(list)
        row: Any
        for row in measured[measured["co_runners"] == ""].itertuples(index=False):
            task = residents_of(row)[0]
            recorded[row.gpu, task.workload].append((task.mps_pct, row.sm_mhz, row.power_w - row.idle_w))
        idle_w = measured.groupby("gpu")["idle_w"].mean()
        return cls(
            {key: tuple(points) for key, points in recorded.items()}, {str(k): float(v) for k, v in idle_w.items()}
        )

    def idle_w(self, gpu: Gpu) -> float:
        """Return the power of the GPU with nothing running, W."""
        if gpu.name not in self._idle_w:
            try:
                self._idle_w[gpu.name] = float(co_run(gpu, (), constants=self._constants).power_w)
            except InputError:
                self._idle_w[gpu.name] = gpu.idle_w
        return self._idle_w[gpu.name]

    def above_idle_w(self, gpu: Gpu, resident: Resident, sm_mhz: float = math.nan) -> float:
        """Return the power above idle of a resident alone at its share, W; NaN if neither record nor model has it.

        `sm_mhz` is the SM clock, MHz, of which the nearest on the grid counts; NaN is the top clock.
        """
        key = gpu, resident, nearest_clock(gpu.clocks_mhz, sm_mhz)
        if key not in self._found:
            self._found[key] = float(self._above_idle_w(*key))  # without numba's compiler it is numpy's
        return self._found[key]

    def shares_j(
        self, gpu: Gpu, residents: Sequence[Resident], sm_mhz: float, energy_j: float, duration_s: float
    ) -> list[float]:
        """Return the parts of a GPU's energy of its residents, J; they sum to `energy_j`.

        The SM clock, MHz, may be NaN for the top clock; the GPU used `energy_j` within `duration_s`.
        """
        weights_w = [self.above_idle_w(gpu, resident, sm_mhz) for resident in residents]
        return split_energy(energy_j, self.idle_w(gpu) * duration_s, weights_w)

    def _above_idle_w(self, gpu: Gpu, resident: Resident, sm_mhz: int) -> float:
        modelled_w = self._modelled_w(gpu, resident, sm_mhz)
        points = self._recorded.get((gpu.name, resident.workload), ())
        if not points:
            return modelled_w
        share, clock = math.log(resident.mps_pct), math.log(sm_mhz)
        pct, mhz, measured_w = min(points, key=lambda at: abs(math.log(at[0]) - share) + abs(math.log(at[1]) - clock))
        there_w = self._modelled_w(
            gpu, Resident(resident.workload, pct, resident.sharing), nearest_clock(gpu.clocks_mhz, mhz)
        )
        known = there_w > 0.0 and not math.isnan(modelled_w)
        return max(0.0, measured_w) * (modelled_w / there_w if known else 1.0)

    def _modelled_w(self, gpu: Gpu, resident: Resident, sm_mhz: int) -> float:
        try:
            idle_w = co_run(gpu, (), constants=self._constants).power_w
            return co_run(gpu, (resident,), sm_mhz, constants=self._constants).power_w - idle_w
        except InputError:
            return math.nan


def nearest_clock(clocks_mhz: Sequence[int], sm_mhz: float) -> int:
    """Return the nearest clock of a grid; the top one for NaN."""
    if math.isnan(sm_mhz):
        return clocks_mhz[-1]
    place = bisect_left(clocks_mhz, sm_mhz)
    return min(clocks_mhz[max(0, place - 1) : place + 1], key=lambda mhz: abs(mhz - sm_mhz))
