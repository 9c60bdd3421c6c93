"""Ways of dividing the energy of emulated runs, held against the Shapley values of the power by the device model."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

import pandas as pd

from heshare.devices.device_model import co_run
from heshare.lab.tenants.tenant_energy import tenant_energy
from heshare.lab.tenants.tenant_power import EQUAL, MODEL, TenantPower, nearest_clock, split_energy
from heshare.running.result import Run
from heshare.shared.errors import require
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

MOST_TENANTS = 12
"""Tenants of one GPU at once: their number of subsets, of which each is estimated, doubles with each of them."""


class ShapleyPower(TenantPower):
    """Division of energy by Shapley values: each tenant's mean addition to the power, over all orders of arrival.

    The device model answers for every subset of the tenants, so that what they add or take from each other (turns,
    contention, the power limit) is divided as well. It is exact on an emulated GPU alone. Records are not used.
    """

    def shares_j(
        self, gpu: Gpu, residents: Sequence[Resident], sm_mhz: float, energy_j: float, duration_s: float
    ) -> list[float]:
        """Return the parts of a GPU's energy of its residents, J, as `TenantPower.shares_j`.

        Raises:
            InputError: more than `MOST_TENANTS` residents, or one that the device model does not have.
        """
        found, action = f"{len(residents)} tenants at once", "Use the weights of `TenantPower`."
        require("residents", found, len(residents) <= MOST_TENANTS, f"at most {MOST_TENANTS}", action)
        values_w = self.shapley_w(gpu, tuple(residents), nearest_clock(gpu.clocks_mhz, sm_mhz))
        return split_energy(energy_j, self.idle_w(gpu) * duration_s, values_w)

    def shapley_w(self, gpu: Gpu, residents: tuple[Resident, ...], sm_mhz: int) -> list[float]:
        """Return the Shapley value of each resident in the power above idle at a clock, W; at least 0."""
        count = len(residents)
        power_w = {
            chosen: co_run(gpu, [residents[place] for place in chosen], sm_mhz, constants=self._constants).power_w
            for size in range(count + 1)
            for chosen in combinations(range(count), size)
        }
        values_w = [0.0] * count
        for chosen, with_w in power_w.items():
            for place in chosen:
                without_w = power_w[tuple(other for other in chosen if other != place)]
                values_w[place] += (with_w - without_w) / (count * comb(count - 1, len(chosen) - 1))
        return [max(0.0, value_w) for value_w in values_w]


SHAPLEY_WAY = "Shapley value, emulated"


def divided_ways(done: Run) -> pd.DataFrame:
    """Return the energy of each task of an emulated run by each way of dividing it.

    Returns:
        Columns tenant (as `resnet50:8`, numbered where there are several), way (`EQUAL`, `MODEL` or `SHAPLEY_WAY`),
        energy_j.
    """
    energy, values = tenant_energy(done), tenant_energy(done, ShapleyPower())
    names = energy["workload"] + ":" + energy["batch_size"].astype(str)
    copy = names.groupby(names).cumcount() + 1
    energy["tenant"] = names.where(copy == 1, names + " #" + copy.astype(str))
    ways = {EQUAL: energy["energy_j"], MODEL: energy["energy_model_j"], SHAPLEY_WAY: values["energy_model_j"]}
    rows = [pd.DataFrame({"tenant": energy["tenant"], "way": way, "energy_j": part_j}) for way, part_j in ways.items()]
    return pd.concat(rows, ignore_index=True)


def errors_of_runs(runs: Iterable[Run]) -> pd.DataFrame:
    """Return by how much ways of dividing the energy of emulated runs differ from the Shapley values.

    Returns:
        Columns way (`EQUAL`, `MODEL`), tenants (their number), mape_pct, p90_pct, worst_pct: mean, 90th percentile and
        largest of the absolute relative difference, %.
    """
    tables = [divided_ways(done).pivot_table(index="tenant", columns="way", values="energy_j") for done in runs]
    energies = pd.concat(tables, ignore_index=True)
    rows = []
    for way in (EQUAL, MODEL):
        error = 100.0 * (energies[way] / energies[SHAPLEY_WAY] - 1.0).abs()
        rows.append((way, len(error), error.mean(), error.quantile(0.9), error.max()))
    return pd.DataFrame(rows, columns=["way", "tenants", "mape_pct", "p90_pct", "worst_pct"])
