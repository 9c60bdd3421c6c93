"""How far the forms for training lie from measurements that no part of them was fitted to."""

from __future__ import annotations

import pandas as pd

from heshare.devices.constants import default
from heshare.devices.model import co_run
from heshare.devices.sharing.mig import COMPUTE, inside
from heshare.devices.sharing.training import training_part
from heshare.world import training
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident

PAIRS_GPU, INSTANCES_GPU = "V100", "A100"


def pairs(sharing: str = "time-slice") -> pd.DataFrame:
    """Gavel's pairs on V100 beside what the device model says; how they shared the GPU, their record does not say.

    Args:
        sharing: the way of sharing that the model is asked for.

    Returns:
        Two rows a pair: columns workload, beside, measured and modelled (slowdowns), error.
    """
    rows = []
    for both, measured in training.measured_pairs():
        found = co_run(gpu(PAIRS_GPU), [Resident(one, 100, sharing) for one in both])
        for one, other, true, task in zip(both, both[::-1], measured, found.tasks, strict=True):
            rows.append((str(one), str(other), true, task.time_s / training.step(one).step_s))
    return _with_error(pd.DataFrame(rows, columns=["workload", "beside", "measured", "modelled"]))


def instances() -> pd.DataFrame:
    """MISO's steps in MIG instances beside what a share of SMs and bandwidth would do, from the whole GPU's step alone.

    Returns:
        One row a workload and instance: columns workload, slices, measured and modelled (slowdowns), error.
    """
    known = training.mig_step_s()
    rows = []
    for (workload, slices), step_s in known.items():
        if slices < COMPUTE:
            whole = training_part(default(), INSTANCES_GPU, Resident(workload))
            modelled = inside(whole, slices).time_s(1.0, 1.0) / whole.time_s(1.0, 1.0)
            rows.append((str(workload), slices, step_s / known[workload, COMPUTE], modelled))
    return _with_error(pd.DataFrame(rows, columns=["workload", "slices", "measured", "modelled"]))


def _with_error(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(error=table["modelled"] / table["measured"] - 1)
