"""A training step on any GPU of the catalogue, in the same parts as an iteration of inference.

The record of a step gives its time, the part of it in which the GPU works, and the power that it draws. The host takes
what the GPU part leaves of the time (both overlap as in inference). Of the GPU part, as much waits for memory as in the
network of Table IV that the workload is like; the power says how much of the rest keeps all SMs busy; what remains is
kernels too small to fill them. On another GPU than the record's the SM times and memory times change as that network's
do, and the host does not.
"""

from __future__ import annotations

import math
from functools import lru_cache

from heshare.devices.constants import Constants, Timing
from heshare.devices.timing import OVERLAP, Part, fold
from heshare.errors import InputError
from heshare.world import training
from heshare.world.training import Step
from heshare.world.workload import Resident

SAMPLES = 32
"""Inference batch size at which the network that a workload is like is compared between GPUs; assumed."""
LAUNCHES = 3.0
"""Kernels of a training step over those of inference: forward, backward, update; assumed."""
MEASURED, ELSEWHERE = 0.05, 0.35
"""Relative standard uncertainty of a step on the GPU of its record, and on another one; assumed."""
MOST_MEMORY = 0.5
"""Part of the energy of a step that memory time takes at most; assumed."""


@lru_cache(maxsize=4096)
def training_part(constants: Constants, gpu: str, resident: Resident) -> Part:
    """The parts of a training step on `gpu` under the resident's MPS percentage.

    Raises:
        InputError: an unknown training workload, or a GPU without constants.
    """
    step = training.step(resident.workload)
    there, here = (_like(constants, name, step) for name in (step.gpu, gpu))
    memory_s, work_s, fill_s = _split(step, constants, there)
    slower, starved = _sms_s(here) / _sms_s(there), here.memory_s / there.memory_s if there.memory_s else 1.0
    return Part(
        fixed_s=0.0,
        memory_s=memory_s * starved,
        base_s=0.0,
        batch_s=work_s * slower,
        fill_s=fill_s * slower,
        share=resident.mps_pct / 100.0,
        host_s=_host_s(step),
        kernels=LAUNCHES * here.kernels,
        batch_size=resident.workload.batch_size,
        anchored=step.measured and gpu == step.gpu,
        uncertainty=MEASURED if gpu == step.gpu else ELSEWHERE,
    )


def _host_s(step: Step) -> float:
    """The host part that makes a step of `step_s` together with its GPU part, s."""
    return step.step_s * float(max(0.0, 1.0 - step.busy**OVERLAP) ** (1.0 / OVERLAP))


def _split(step: Step, constants: Constants, there: Part) -> tuple[float, float, float]:
    """(memory, work, fill) of the GPU part on the GPU of the record, s."""
    power = constants.power[step.gpu]
    gpu_s = step.busy * step.step_s
    energy_s = min(step.dynamic_w / power.dynamic_w, step.busy) * step.step_s
    memory_s = gpu_s * there.memory_s / there.gpu_s(1.0, 1.0)
    if 0 < power.memory < 1:
        # Waiting for memory draws less than working: no more of it than the power allows, from both sides.
        memory_s = min(memory_s, MOST_MEMORY * energy_s / power.memory, (gpu_s - energy_s) / (1 - power.memory))
    rest_s = gpu_s - memory_s
    work_s = min(energy_s - power.memory * memory_s, rest_s)
    return memory_s, work_s, math.sqrt(rest_s * rest_s - work_s * work_s)


def _like(constants: Constants, gpu: str, step: Step) -> Part:
    """An iteration on `gpu` of the network that a workload is like."""
    try:
        known: Timing = constants.timing[gpu, "eager", step.like]
    except KeyError:
        raise InputError(
            column="gpu",
            found=repr(gpu),
            expected="a GPU of the calibrated model",
            action="Add the GPU to data/gpus.csv and run `make calibrate`.",
        ) from None
    return fold(known, SAMPLES, 1.0)


def _sms_s(part: Part) -> float:
    """What of the GPU part does not wait for memory, s."""
    return part.gpu_s(1.0, 1.0) - part.memory_s - part.fixed_s
