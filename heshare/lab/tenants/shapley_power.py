"""Shapley values of the power of a GPU's tenants by the device model: a yardstick for weights of power alone."""

from collections.abc import Sequence
from itertools import combinations
from math import comb

from heshare.devices.device_model import co_run
from heshare.lab.tenants.energy_split import split_energy
from heshare.lab.tenants.tenant_power import TenantPower, nearest_clock
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
