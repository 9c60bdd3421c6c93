"""Time and energy of workloads on each GPU, at each clock, and in pairs (Section II, Figs. 1 to 4)."""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants
from heshare.devices.device_model import co_run
from heshare.ops.recording.budget_plan import PAIRS
from heshare.shared.arrays import FloatArray
from heshare.world.catalogue import gpu as card
from heshare.world.catalogue import memory_mib, models, paper_models
from heshare.world.workload import Resident, Workload

PAPER_GPUS = ("T4", "V100", "A100")
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
    precision: str = "fp32",
) -> pd.DataFrame:
    """Return every workload alone on every GPU at its default clock (Figs. 1 and 2); columns as from `solo_columns`.

    GPUs are compared, so the uncertainty is that of the device model inside one framework, with `constants` or its
    calibrated ones; `power_uncertainty` likewise.
    """
    rows = []
    for model, batch_size, name in product(paper_models().values(), batch_sizes, gpus):
        found = co_run(card(name), (Resident(Workload(model.name, batch_size, precision)),), constants=constants)
        task = found.tasks[0]
        row = {"workload": model.name, "batch_size": batch_size, "gpu": name, "time_s": task.time_s}
        row |= {"power_w": found.power_w, "energy_j": found.power_w * task.time_s, "sm_mhz": found.sm_mhz}
        row |= {"uncertainty": task.uncertainty_parts.within_framework, "provenance": "emulated"}
        power = found.power_uncertainty_parts.within_framework
        rows.append({**row, "anchored": task.anchored, "power_uncertainty": power})
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


def clocks(
    model: str, *, batch_sizes: Iterable[int], points: int, constants: Constants | None = None, precision: str = "fp32"
) -> pd.DataFrame:
    """Return one workload alone at the SM clocks of each GPU's own grid, thinned to `points` (Fig. 3)."""
    rows = []
    for batch_size, name in product(batch_sizes, PAPER_GPUS):
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


def pairs(*, batch_size: int, constants: Constants | None = None, precision: str = "fp32") -> pd.DataFrame:
    """Return pairs of workloads alone and together on each GPU with enough memory for both (Fig. 4)."""
    rows = []
    for name, pair in product(PAPER_GPUS, PAIRS):
        both = tuple(Resident(Workload(model, batch_size, precision)) for model in pair)
        if sum(memory_mib(resident.workload) for resident in both) > card(name).memory_mib:
            continue
        alone_s = np.array([co_run(card(name), (each,), constants=constants).tasks[0].time_s for each in both])
        together_s = np.array([task.time_s for task in co_run(card(name), both, constants=constants).tasks])
        rows.append(pair_row(name, pair, alone_s, together_s) | {"provenance": "emulated"})
    return pd.DataFrame(rows)


def pair_row(gpu: str, pair: Iterable[str], alone_s: FloatArray, together_s: FloatArray) -> dict[str, object]:
    # Geometric means, so that the slowdown of the means is the mean of the slowdowns.
    alone, together = (float(np.exp(np.log(times).mean())) for times in (alone_s, together_s))
    title = " + ".join(models()[name].title for name in pair)
    return {
        "gpu": gpu, "pair": title, "alone_s": alone, "together_s": together,
        "degradation_pct": 100.0 * (together / alone - 1.0),
    }  # fmt: skip


def spread(frame: pd.DataFrame, value: str) -> pd.Series:
    """Return the largest over the smallest `value` between GPUs, by workload: 1 where all GPUs are alike."""
    grouped = frame.groupby("workload", sort=False)[value]
    return grouped.max() / grouped.min()


_CLASSES = ("low", "medium", "high")


def by_load(classes: pd.Series) -> pd.Series:
    """Return the places of load classes, the lightest first, as a sort key."""
    return classes.map(_CLASSES.index)


def by_weight(frame: pd.DataFrame) -> pd.DataFrame:
    """Return workloads alone as Figs. 1 and 2 draw them: light classes first, in each the shortest on a T4 first.

    `frame` is as from `solo`; the column `unmeasured` is added, true where no measurement of that workload on that GPU
    stands behind the time.
    """
    slowest = frame.groupby("workload")["time_s"].transform("max")
    marked = frame.assign(unmeasured=~frame["anchored"].astype(bool), slowest=slowest)
    ordered = marked.assign(rank=by_load(marked["load"])).sort_values(["rank", "slowest"], kind="stable")
    return ordered.drop(columns=["rank", "slowest"])


def ratios(frame: pd.DataFrame, value: str, sizes: Iterable[int], gpus: tuple[str, str] | None = None) -> pd.DataFrame:
    """Return a ratio between GPUs for each workload and inference batch size.

    With `gpus` it is the first one's value over the second's, else the largest over the smallest.
    """
    columns = {}
    for size in sizes:
        part = frame[frame["batch_size"] == size]
        wide = part.pivot_table(index="workload", columns="gpu", values=value, sort=False)
        columns[size] = wide.max(axis=1) / wide.min(axis=1) if gpus is None else wide[gpus[0]] / wide[gpus[1]]
    return pd.DataFrame(columns)


def with_ratios(frame: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    return frame.merge(found.add_prefix("ratio_bs"), left_on="workload", right_index=True, how="left", sort=False)


def class_medians(frame: pd.DataFrame, found: pd.Series) -> pd.Series:
    """Return the median of a ratio over the workloads of each load class; `found` is by workload."""
    loads = frame.drop_duplicates("workload").set_index("workload")["load"]
    return found.groupby(loads).median()


def clock_gains(frame: pd.DataFrame) -> dict[str, float]:
    """Return the time at half of each GPU's top clock over that at all of it; `frame` is as from `clocks`."""
    gains = {}
    for gpu, part in frame[frame["batch_size"] == frame["batch_size"].max()].groupby("gpu", sort=False):
        half = part.iloc[(part["requested_mhz"] - 0.5 * part["requested_mhz"].max()).abs().argmin()]
        gains[str(gpu)] = float(half["time_s"] / part["time_s"].iloc[-1])
    return gains


def ratio(frame: pd.DataFrame, workload: str, over: str = "T4", under: str = "A100") -> tuple[float, float, float]:
    """Return a workload's time on one GPU over that on another, with the 95 % interval of the model's uncertainty."""
    rows = frame[frame["workload"] == workload].set_index("gpu").loc[[over, under]]
    slow_s, fast_s = rows["time_s"].to_numpy(float)
    middle = float(slow_s / fast_s)
    factor = float(np.exp(2 * np.hypot(*rows["uncertainty"].to_numpy(float))))
    return middle, middle / factor, middle * factor
