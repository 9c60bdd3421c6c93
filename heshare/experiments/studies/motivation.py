"""Section II's observations: what the workloads cost on each GPU, under each clock, and in pairs (Figs. 1 to 4)."""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants
from heshare.devices.device_model import co_run
from heshare.gpu.recording.budget_plan import PAIRS
from heshare.world.catalogue import gpu as card
from heshare.world.catalogue import memory_mib, models
from heshare.world.workload import Resident, Workload

PAPER_GPUS = ("T4", "V100", "A100")


def solo(
    gpus: Sequence[str] = PAPER_GPUS, *, batch_sizes: Iterable[int], constants: Constants | None = None
) -> pd.DataFrame:
    """Every workload alone on every GPU, the card left to itself (Figs. 1 and 2).

    Args:
        gpus: names of GPUs.
        batch_sizes: inference batch sizes.
        constants: of the device model; the calibrated ones unless given.

    Returns:
        One row a (workload, inference batch size, GPU): workload, title, load, batch_size, gpu, time_s (per iteration),
        time_low_s and time_high_s (the model's own uncertainty, two standard deviations), power_w, energy_j (per
        iteration, energy_low_j and energy_high_j by the time's uncertainty), sm_mhz (reached), anchored, provenance.
    """
    rows = []
    for model, batch_size, name in product(models().values(), batch_sizes, gpus):
        found = co_run(card(name), (Resident(Workload(model.name, batch_size)),), constants=constants)
        task = found.tasks[0]
        # The factor is symmetric in the logarithm: a time cannot be negative.
        factor = float(np.exp(2 * task.uncertainty))
        rows.append(
            {
                "workload": model.name,
                "title": model.title,
                "load": model.load,
                "batch_size": batch_size,
                "gpu": name,
                "time_s": task.time_s,
                "time_low_s": task.time_s / factor,
                "time_high_s": task.time_s * factor,
                "power_w": found.power_w,
                "energy_j": found.power_w * task.time_s,
                "energy_low_j": found.power_w * task.time_s / factor,
                "energy_high_j": found.power_w * task.time_s * factor,
                "sm_mhz": found.sm_mhz,
                "anchored": task.anchored,
                "uncertainty": task.uncertainty,
                "provenance": "emulated",
            }
        )
    return pd.DataFrame(rows)


def clocks(model: str, *, batch_sizes: Iterable[int], points: int, gpus: Sequence[str] = PAPER_GPUS) -> pd.DataFrame:
    """One workload alone against the SM clock, over each GPU's own grid thinned to `points` (Fig. 3).

    Returns:
        Columns workload, batch_size, gpu, requested_mhz, sm_mhz (reached), time_s, power_w, energy_j, throttled,
        relative_time (to the time at the lowest clock), provenance.
    """
    rows = []
    for batch_size, name in product(batch_sizes, gpus):
        grid = card(name).clocks_mhz
        chosen = sorted({grid[round(i)] for i in np.linspace(0, len(grid) - 1, points)})
        for mhz in chosen:
            found = co_run(card(name), (Resident(Workload(model, batch_size)),), mhz)
            time_s = found.tasks[0].time_s
            rows.append(
                {
                    "workload": model,
                    "batch_size": batch_size,
                    "gpu": name,
                    "requested_mhz": mhz,
                    "sm_mhz": found.sm_mhz,
                    "time_s": time_s,
                    "power_w": found.power_w,
                    "energy_j": found.power_w * time_s,
                    "throttled": found.sm_mhz < mhz - 1e-6,
                    "provenance": "emulated",
                }
            )
    frame = pd.DataFrame(rows)
    slowest = frame.groupby(["batch_size", "gpu"])["time_s"].transform("max")
    return frame.assign(relative_time=frame["time_s"] / slowest)


def pairs(
    chosen: Iterable[Sequence[str]] = PAIRS, *, batch_size: int, mps_pct: int = 100, gpus: Sequence[str] = PAPER_GPUS
) -> pd.DataFrame:
    """Pairs of workloads alone and together on each GPU (Fig. 4); a pair that a GPU's memory cannot hold is left out.

    Returns:
        Columns gpu, pair, alone_s and together_s (mean time per iteration of the two), degradation_pct (mean over the
        two of time together over time alone, less 1), provenance.
    """
    rows = []
    for name, (one, other) in product(gpus, chosen):
        both = tuple(Resident(Workload(model, batch_size), mps_pct) for model in (one, other))
        if sum(memory_mib(resident.workload) for resident in both) > card(name).memory_mib:
            continue
        alone = np.array([co_run(card(name), (resident,)).tasks[0].time_s for resident in both])
        together = np.array([task.time_s for task in co_run(card(name), both).tasks])
        rows.append(
            {
                "gpu": name,
                "pair": f"{models()[one].title} + {models()[other].title}",
                "alone_s": float(alone.mean()),
                "together_s": float(together.mean()),
                "degradation_pct": 100.0 * float((together / alone).mean() - 1.0),
                "provenance": "emulated",
            }
        )
    return pd.DataFrame(rows)


def spread(frame: pd.DataFrame, value: str) -> pd.Series:
    """Largest over smallest `value` between GPUs, by workload: 1 where all GPUs are alike."""
    grouped = frame.groupby("workload", sort=False)[value]
    return grouped.max() / grouped.min()


def ratio(frame: pd.DataFrame, workload: str, over: str = "T4", under: str = "A100") -> tuple[float, float, float]:
    """A workload's time on one GPU over that on another, with the interval of the model's uncertainty (95 %)."""
    rows = frame[frame["workload"] == workload].set_index("gpu").loc[[over, under]]
    slow_s, fast_s = rows["time_s"].to_numpy(float)
    middle = float(slow_s / fast_s)
    factor = float(np.exp(2 * np.hypot(*rows["uncertainty"].to_numpy(float))))
    return middle, middle / factor, middle * factor
