"""Errors of the device model's forms for training, on measurements that no part of them was fitted to."""

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from heshare.devices.board_power import capped_clock_mhz, memory_slowdown_at
from heshare.devices.constants import Constants, default
from heshare.devices.iteration_time import Iteration, iteration_at
from heshare.devices.uncertainty import Uncertainty
from heshare.lab.systems.miso.mig import COMPUTE, in_instance, inside
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.training_step import training_iteration
from heshare.shared import files
from heshare.shared.inputs.csv_table import read_table
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident

INSTANCES_GPU = "A100"
FIXED_W = range(20, 100)
"""Powers that do not fall with the clock, W, among which `power_limit_errors` chooses."""


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
    return _with_error(pd.DataFrame(rows, columns=["workload", "slices", "measured", "modelled"]))


def power_limit_errors() -> pd.DataFrame:
    """Return Zeus' trainings under power limits beside voltage, clock and memory time of the device model.

    The GPU is an A40, which the catalogue does not have: its voltage curve is the A100's in proportion to the clock,
    the power that does not fall with the clock (idle, memory) is fitted to the other three networks. Each keeps the
    GPU busy, and waits for memory as much as the network of Table IV that it is like.

    Returns:
        One row a network and limit: columns model, limit_w, fixed_w, measured and modelled (time over that without
        a limit), error.
    """
    measured = _power_limited_trainings()
    rows = []
    for model in dict.fromkeys(run.model for run in measured):
        others = [run for run in measured if run.model != model]
        fixed_w = min(
            FIXED_W, key=lambda watts: sum(abs(math.log(_slowdown(run, watts) / run.slowdown)) for run in others)
        )
        rows += [
            (model, run.limit_w, fixed_w, run.slowdown, _slowdown(run, fixed_w))
            for run in measured
            if run.model == model
        ]
    return _with_error(pd.DataFrame(rows, columns=["model", "limit_w", "fixed_w", "measured", "modelled"]))


def _power_limited_trainings() -> list[Any]:
    """Return Zeus' trainings on an A40 under power limits, of each network from the highest limit down.

    Returns:
        Rows of model, like, limit_w, slowdown (over the mean time at the two highest limits), and free_w (the higher
        power of those two, W).
    """
    names, numbers = ("model", "like"), ("limit_w", "epoch_s", "power_w")
    rows = [
        [*map(row.text, names), *map(row.number_of, numbers)]
        for row in read_table(files.data("training", "limits.csv"), (*names, *numbers))
    ]
    table = pd.DataFrame(rows, columns=[*names, *numbers])
    free = table.groupby("model").head(2).groupby("model").agg({"epoch_s": "mean", "power_w": "max"})
    slowdown = table["epoch_s"] / table["model"].map(free["epoch_s"])
    return list(table.assign(slowdown=slowdown, free_w=table["model"].map(free["power_w"])).itertuples())


def _slowdown(run: Any, fixed_w: float) -> float:
    """Modelled time under a power limit over that without, of a training that is always busy."""
    constants, card = default(), gpu(INSTANCES_GPU)
    curve, top = constants.power[card.name], float(card.max_mhz)
    like = iteration_at(constants.timing[card.name, "eager", run.like], 32, 1.0)
    memory = like.memory_s / like.gpu_s(1.0, 1.0)
    busy = Iteration(0.0, memory, 0.0, 1.0 - memory, 0.0, 1.0, 0.0, 0.0, 1, False, Uncertainty())
    load = busy.work_s + curve.memory * memory
    power = replace(curve, idle_w=fixed_w, dynamic_w=(run.free_w - fixed_w) / load, clock_w=0.0)
    reached = capped_clock_mhz(power, [busy], run.limit_w, top, top)
    return busy.time_s(top / reached, memory_slowdown_at(power, reached))


def _with_error(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(error=table["modelled"] / table["measured"] - 1)
