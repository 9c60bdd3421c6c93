"""Ways of dividing the energy of emulated runs, held against the Shapley values of the emulated board."""

from collections.abc import Iterable

import pandas as pd

from heshare.lab.tenants.energy_split import EQUAL, MODEL
from heshare.lab.tenants.shapley_power import ShapleyPower
from heshare.lab.tenants.tenant_energy import tenant_energy
from heshare.running.result import Run

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
