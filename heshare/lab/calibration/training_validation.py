"""Errors of the device model's form for MIG instances, on training steps that it was not fitted to."""

import pandas as pd

from heshare.devices.constants import Constants, default
from heshare.lab.systems.miso.mig import COMPUTE, in_instance, inside
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.training_step import training_iteration
from heshare.world.workload import Resident

INSTANCES_GPU = "A100"


def mig_instance_errors(constants: Constants | None = None, powers: tuple[float, float] | None = None) -> pd.DataFrame:
    """Return MISO's steps in MIG instances beside the effect of a share of SMs and bandwidth on the whole GPU's step.

    `constants`, and the `powers` of slices and memory slices, are the calibrated ones unless given.

    Returns:
        One row a workload and instance: columns workload, slices, measured and modelled (slowdowns), error.
    """
    steps_s = training.mig_step_times_s()
    rows = []
    for (workload, slices), step_s in steps_s.items():
        if slices < COMPUTE:
            whole = training_iteration(constants or default(), INSTANCES_GPU, Resident(workload))
            own = inside(whole, slices) if powers is None else in_instance(whole, slices, *powers)
            modelled = own.time_s(1.0, 1.0) / whole.time_s(1.0, 1.0)
            rows.append((str(workload), slices, step_s / steps_s[workload, COMPUTE], modelled))
    table = pd.DataFrame(rows, columns=["workload", "slices", "measured", "modelled"])
    return table.assign(error=table["modelled"] / table["measured"] - 1)
