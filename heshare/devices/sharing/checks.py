"""How far the forms for training lie from measurements that no part of them was fitted to."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from heshare.devices.constants import default
from heshare.devices.model import co_run
from heshare.devices.power import clock_under, stall
from heshare.devices.sharing.mig import COMPUTE, inside
from heshare.devices.sharing.training import training_part
from heshare.devices.timing import Part, fold
from heshare.world import training
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident

PAIRS_GPU, INSTANCES_GPU = "V100", "A100"
FIXED_W = range(20, 100)
"""Powers that no limit takes away, W, among which `limits` chooses."""


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


def limits() -> pd.DataFrame:
    """Zeus' trainings under power limits beside what voltage, clock and memory time of the device model give.

    The card is an A40, which the catalogue does not have: its voltage curve is the A100's in proportion to the clock,
    the power that no limit takes away (idle, memory) is fitted to the other three networks. Each keeps the GPU busy,
    and waits for memory as much as the network of Table IV that it is like.

    Returns:
        One row a network and limit: columns model, limit_w, fixed_w, measured and modelled (time over that without
        a limit), error.
    """
    measured = training.limited()
    rows = []
    for model in dict.fromkeys(one.model for one in measured):
        others = [one for one in measured if one.model != model]
        fixed_w = min(
            FIXED_W, key=lambda watts: sum(abs(math.log(_limited(one, watts) / one.slowdown)) for one in others)
        )
        for one in measured:
            if one.model == model:
                rows.append((model, one.limit_w, fixed_w, one.slowdown, _limited(one, fixed_w)))
    return _with_error(pd.DataFrame(rows, columns=["model", "limit_w", "fixed_w", "measured", "modelled"]))


def _limited(one: training.Limited, fixed_w: float) -> float:
    """Time under a power limit over that without, of a training that is always busy."""
    constants, card = default(), gpu(INSTANCES_GPU)
    curve, top = constants.power[card.name], float(card.max_mhz)
    like = fold(constants.timing[card.name, "eager", one.like], 32, 1.0)
    waits = like.memory_s / like.gpu_s(1.0, 1.0)
    busy = Part(0.0, waits, 0.0, 1.0 - waits, 0.0, 1.0, 0.0, 0.0, 1, False, 0.0)
    load = busy.work_s + curve.memory * waits
    power = replace(curve, idle_w=fixed_w, dynamic_w=(one.free_w - fixed_w) / load)
    reached = clock_under(power, [busy], one.limit_w, top, top)
    return busy.time_s(top / reached, stall(power, reached))


def _with_error(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(error=table["modelled"] / table["measured"] - 1)
