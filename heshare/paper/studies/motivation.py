"""Time and energy of workloads on each GPU, at each clock, and in pairs (Section II, Figs. 1 to 4)."""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants
from heshare.devices.device_model import co_run
from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.ops.recording.budget_plan import PAIRS
from heshare.shared.arrays import FloatArray
from heshare.world.catalogue import PAPER_GPUS, memory_mib, models, paper_models
from heshare.world.catalogue import gpu as card
from heshare.world.workload import DEFAULT_PRECISION, Resident, Workload

CLASSES = ("low", "medium", "high")
"""Load classes of Section V-B, the lightest first."""
CLOCK_COLUMNS = (
    "workload", "batch_size", "gpu", "requested_mhz", "sm_mhz", "time_s", "power_w", "energy_j", "throttled",
    "provenance", "relative_time",
)  # fmt: skip
_SOLO = (
    "workload", "title", "load", "batch_size", "gpu", "time_s", "time_low_s", "time_high_s", "power_w", "energy_j",
    "energy_low_j", "energy_high_j", "sm_mhz", "anchored", "uncertainty", "provenance",
)  # fmt: skip


def solo(
    gpus: Sequence[str] = PAPER_GPUS,
    *,
    batch_sizes: Iterable[int],
    constants: Constants | None = None,
    precision: str = DEFAULT_PRECISION,
) -> pd.DataFrame:
    """Return every workload alone on every GPU at its default clock (Figs. 1 and 2).

    Uncertainties are those of the device model within one framework, since GPUs are compared. `constants` are those of
    the device model, by default the calibrated ones.

    Returns:
        Columns as from `solo_columns`.
    """
    rows = []
    for model, batch_size, name in product(paper_models().values(), batch_sizes, gpus):
        workload = Workload(model.name, batch_size, precision)
        found = co_run(card(name), (Resident(workload),), constants=constants)
        task = found.tasks[0]
        rows.append(
            {
                "workload": model.name,
                "batch_size": batch_size,
                "gpu": name,
                "time_s": task.time_s,
                "power_w": found.power_w,
                "energy_j": found.power_w * task.time_s,
                "sm_mhz": found.sm_mhz,
                "anchored": task.anchored,
                "uncertainty": task.uncertainty_parts.within_framework,
                "power_uncertainty": found.power_uncertainty_parts.within_framework,
                "provenance": "emulated",
            }
        )
    return solo_columns(pd.DataFrame(rows))


def solo_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return workloads alone with their titles, loads and intervals (two standard deviations, `uncertainty`).

    The interval of an energy is of `uncertainty` and `power_uncertainty` (0 where there is none) together.

    Returns:
        One row a workload, inference batch size and GPU: workload, title, load, batch_size, gpu, time_s (of an
        iteration), time_low_s, time_high_s, power_w, energy_j (of an iteration), energy_low_j, energy_high_j, sm_mhz
        (reached), anchored (whether the time is based on a measurement), uncertainty, provenance.
    """
    of = [models()[name] for name in frame["workload"]]
    # The factor is symmetric in the logarithm: a time cannot be negative.
    factor = np.exp(2 * frame["uncertainty"])
    power_uncertainty = frame.get("power_uncertainty", pd.Series(0.0, index=frame.index))
    energy_factor = np.exp(2 * np.hypot(frame["uncertainty"], power_uncertainty))

    found = frame.assign(
        title=[model.title for model in of],
        load=[model.load for model in of],
        time_low_s=frame["time_s"] / factor,
        time_high_s=frame["time_s"] * factor,
        energy_low_j=frame["energy_j"] / energy_factor,
        energy_high_j=frame["energy_j"] * energy_factor,
    )
    return found[list(_SOLO)]


def by_weight(alone: pd.DataFrame) -> pd.DataFrame:
    """Return workloads alone in the order of Figs. 1 and 2: by load class, then by time on a T4."""
    slowest = alone.groupby("workload")["time_s"].transform("max")
    keys = alone.assign(rank=alone["load"].map(CLASSES.index), slowest=slowest)
    return alone.loc[keys.sort_values(["rank", "slowest"], kind="stable").index]


def ratios_between_gpus(alone: pd.DataFrame) -> pd.DataFrame:
    """Return how much energy and time of each workload differ between T4, V100 and A100; `alone` is as from `solo`.

    Returns:
        No row without these GPUs, else one row a workload and inference batch size: workload, load, gflops (of a
        sample), batch_size, energy_ratio (highest over lowest), time_ratio (slowest over fastest), t4_over_a100 (times)
        with its ends low and high (two standard deviations of the device model), unmeasured (the GPUs on which its time
        follows from features of the network, not from a measurement), provenance.
    """
    alone = alone[alone["gpu"].isin(PAPER_GPUS)]
    keys = ["workload", "load", "batch_size"]
    energy_j, time_s, uncertainty = (
        alone.pivot_table(index=keys, columns="gpu", values=value, sort=False)
        for value in ("energy_j", "time_s", "uncertainty")
    )
    if not set(PAPER_GPUS) <= set(time_s):
        return pd.DataFrame(columns=[*keys, "gflops", "energy_ratio", "time_ratio", "t4_over_a100"])
    t4_over_a100 = time_s["T4"] / time_s["A100"]
    factor = np.exp(2 * np.hypot(uncertainty["T4"], uncertainty["A100"]))
    is_derived = ~alone["anchored"].astype(bool)

    found = pd.DataFrame(
        {
            "energy_ratio": energy_j.max(axis=1) / energy_j.min(axis=1),
            "time_ratio": time_s.max(axis=1) / time_s.min(axis=1),
            "t4_over_a100": t4_over_a100,
            "low": t4_over_a100 / factor,
            "high": t4_over_a100 * factor,
            "unmeasured": alone[is_derived].groupby(keys)["gpu"].agg(", ".join),
        }
    )
    rows = found.reindex(energy_j.index).fillna({"unmeasured": ""}).reset_index()
    rows.insert(2, "gflops", [models()[name].gflops for name in rows["workload"]])
    return rows.assign(provenance="emulated")


def over_sizes(values: pd.Series, batch_size: int) -> ConfidenceInterval:
    """Return the value at an inference batch size with the range over all sizes; `values` is by size."""
    return ConfidenceInterval(float(values[batch_size]), float(values.min()), float(values.max()), len(values))


def clocks(
    model: str,
    gpus: Sequence[str] = PAPER_GPUS,
    *,
    batch_sizes: Iterable[int],
    points: int,
    constants: Constants | None = None,
    precision: str = DEFAULT_PRECISION,
) -> pd.DataFrame:
    """Return one workload alone at `points` SM clocks of each GPU's grid (Fig. 3).

    Returns:
        One row an inference batch size, GPU and clock, with the columns `CLOCK_COLUMNS`: `throttled` where the power
        limit keeps the GPU below the requested clock, `relative_time` is over the longest time of the GPU and size.
    """
    rows = []
    for batch_size, name in product(batch_sizes, gpus):
        grid = card(name).clocks_mhz
        chosen = sorted({grid[round(i)] for i in np.linspace(0, len(grid) - 1, points)})
        for mhz in chosen:
            found = co_run(card(name), (Resident(Workload(model, batch_size, precision)),), mhz, constants=constants)
            time_s = found.tasks[0].time_s
            measures = (found.sm_mhz, time_s, found.power_w, found.power_w * time_s, found.sm_mhz < mhz - 1e-6)
            rows.append((model, batch_size, name, mhz, *measures, "emulated"))

    frame = pd.DataFrame(rows, columns=CLOCK_COLUMNS[:-1])
    slowest = frame.groupby(["batch_size", "gpu"])["time_s"].transform("max")
    return frame.assign(relative_time=frame["time_s"] / slowest)


def clock_elasticities(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the elasticity of time over the clock, in the upper half of each GPU's clocks.

    It is -1 where time falls as the clock rises, and 0 where the clock has no effect. `frame` is as from `clocks`.

    Returns:
        One row an inference batch size, one column a GPU.
    """
    found: dict[str, dict[int, float]] = {}
    for gpu, batch_size in frame[["gpu", "batch_size"]].drop_duplicates().itertuples(index=False):
        part = frame[(frame["gpu"] == gpu) & (frame["batch_size"] == batch_size)]
        upper = part[part["requested_mhz"] >= 0.5 * part["requested_mhz"].max()]
        log_mhz = np.log(upper["requested_mhz"].to_numpy(float))
        log_s = np.log(upper["time_s"].to_numpy(float))
        found.setdefault(gpu, {})[batch_size] = float(np.polyfit(log_mhz, log_s, 1)[0])
    return pd.DataFrame(found)


def pairs(
    gpus: Sequence[str] = PAPER_GPUS,
    *,
    batch_size: int,
    constants: Constants | None = None,
    precision: str = DEFAULT_PRECISION,
) -> pd.DataFrame:
    """Return pairs of workloads alone and together, each at 100 %, on each GPU with enough memory for both (Fig. 4).

    Returns:
        One row a GPU and pair: gpu, pair, alone_s and together_s (geometric means of the two), degradation_pct (how
        much longer together), provenance.
    """
    rows = []
    for name, pair in product(gpus, PAIRS):
        both = tuple(Resident(Workload(model, batch_size, precision)) for model in pair)
        if sum(memory_mib(resident.workload) for resident in both) > card(name).memory_mib:
            continue
        alone_s = np.array([co_run(card(name), (each,), constants=constants).tasks[0].time_s for each in both])
        together_s = np.array([task.time_s for task in co_run(card(name), both, constants=constants).tasks])
        rows.append(pair_row(name, pair, alone_s, together_s) | {"provenance": "emulated"})
    return pd.DataFrame(rows)


def pair_row(gpu: str, pair: Iterable[str], alone_s: FloatArray, together_s: FloatArray) -> dict[str, object]:
    """Return a row of `pairs` without its provenance; the times are of both tasks, each of shape (2,)."""
    # Geometric means, so that the slowdown of the means is the mean of the slowdowns.
    alone = float(np.exp(np.log(alone_s).mean()))
    together = float(np.exp(np.log(together_s).mean()))
    return {
        "gpu": gpu,
        "pair": " + ".join(models()[name].title for name in pair),
        "alone_s": alone,
        "together_s": together,
        "degradation_pct": 100.0 * (together / alone - 1.0),
    }
