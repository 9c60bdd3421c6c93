"""The emulated training step: one iteration of a training workload on any GPU of the catalogue.

A step has the same parts as an iteration of inference. The record of the workload gives the time of a step, the part of
it in which the GPU works (its busy part), and the power. From these the parts follow:

- host: what the GPU part leaves of the step, where both overlap as in inference;
- memory: the same part of the GPU part as in the network of Table IV that the workload resembles;
- work: what keeps all SMs busy, by the power;
- fill: the rest, kernels too small to fill the SMs.

On another GPU than that of the record, SM times and memory times change by the ratios of the network of Table IV, and
the host part stays. This transfer is assumed: no record has one training on two types of GPU.
"""

import math
from functools import lru_cache

from heshare.devices.constants import Constants, Timing, default
from heshare.devices.device_model import register_iteration_model
from heshare.devices.iteration_time import OVERLAP, Iteration, iteration_at, iteration_of
from heshare.devices.uncertainty import Uncertainty
from heshare.errors import InputError
from heshare.systems.shared import training
from heshare.systems.shared.training import TrainingStep
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

SAMPLES = 32
"""Inference batch size at which the network of Table IV is compared between GPUs; assumed."""
LAUNCHES = 3.0
"""Kernels of a training step over those of inference: forward, backward, update; assumed."""
MEASURED, ELSEWHERE = 0.05, 0.35
"""Relative standard uncertainty of a step on the GPU of its record, and on another one; assumed."""
MOST_MEMORY = 0.5
"""Part of the energy of a step that memory time takes at most; assumed."""


@lru_cache(maxsize=4096)
def training_iteration(constants: Constants, gpu: str, resident: Resident) -> Iteration:
    """Return the parts of a training step on `gpu` under the resident's MPS percentage.

    Raises:
        InputError: an unknown training workload, or a GPU without constants.
    """
    step = training.step(resident.workload)
    recorded, target = (_inference_like(constants, name, step) for name in (step.gpu, gpu))
    memory_s, work_s, fill_s = _gpu_parts(step, constants, recorded)
    sms_ratio = _sms_s(target) / _sms_s(recorded)
    memory_ratio = target.memory_s / recorded.memory_s if recorded.memory_s else 1.0
    return Iteration(
        fixed_s=0.0,
        memory_s=memory_s * memory_ratio,
        base_s=0.0,
        batch_s=work_s * sms_ratio,
        fill_s=fill_s * sms_ratio,
        share=resident.mps_pct / 100.0,
        host_s=_host_s(step),
        kernels=LAUNCHES * target.kernels,
        batch_size=resident.workload.batch_size,
        anchored=step.measured and gpu == step.gpu,
        intensity=full_intensity(constants, step.gpu),
        uncertainty=Uncertainty(fit=MEASURED) if gpu == step.gpu else Uncertainty(transfer=ELSEWHERE),
    )


@lru_cache(maxsize=4096)
def busy_alone(gpu: Gpu, workload: Workload) -> float:
    """Return the GPU utilisation of a workload alone on an emulated GPU at the top clock, 0 to 1.

    This is the driver's measure: the part of the time in which some kernel runs.

    Raises:
        InputError: the calibrated model has no such workload or GPU.
    """
    iteration_model = training_iteration if workload.phase == "training" else iteration_of
    iteration = iteration_model(default(), gpu.name, Resident(workload))
    return min(1.0, iteration.gpu_s(1.0, 1.0) / iteration.time_s(1.0, 1.0))


@lru_cache(maxsize=4096)
def full_intensity(constants: Constants, gpu: str) -> float:
    """Return the intensity of the trainings recorded on a GPU: their dynamic power over that of CNN inference in FP32.

    The one that draws most while it runs keeps all SMs busy.
    """
    steps = [step for step in map(training.step, training.workloads()) if step.gpu == gpu]
    power = constants.power[gpu]
    most_w = max((step.dynamic_w / step.busy for step in steps if step.measured), default=power.dynamic_w)
    return (most_w - power.clock_w) / power.dynamic_w


def _host_s(step: TrainingStep) -> float:
    """Return the host part that makes a step of `step_s` together with its GPU part, s."""
    return step.step_s * float(max(0.0, 1.0 - step.busy**OVERLAP) ** (1.0 / OVERLAP))


def _gpu_parts(step: TrainingStep, constants: Constants, like: Iteration) -> tuple[float, float, float]:
    """Return (memory, work, fill) of the GPU part on the GPU of the record, s."""
    power = constants.power[step.gpu]
    gpu_s = step.busy * step.step_s
    # The clocks draw their part while any kernel runs; the rest is that of the work.
    above_w = max(0.0, step.dynamic_w - step.busy * power.clock_w)
    energy_s = min(above_w / (power.dynamic_w * full_intensity(constants, step.gpu)), step.busy) * step.step_s
    memory_s = gpu_s * like.memory_s / like.gpu_s(1.0, 1.0)
    if 0 < power.memory < 1:
        # Waiting for memory draws less power than work. So the energy bounds memory time twice: it takes at most
        # MOST_MEMORY of the energy, and the energy that is left must fit into the time that is left.
        memory_s = min(memory_s, MOST_MEMORY * energy_s / power.memory, (gpu_s - energy_s) / (1 - power.memory))
    rest_s = gpu_s - memory_s
    work_s = min(energy_s - power.memory * memory_s, rest_s)
    # Work and fill add up as the legs of a right triangle, as in `Iteration.gpu_s`.
    return memory_s, work_s, math.sqrt(rest_s * rest_s - work_s * work_s)


def _inference_like(constants: Constants, gpu: str, step: TrainingStep) -> Iteration:
    """Return an iteration on `gpu` of the network of Table IV that a workload resembles."""
    try:
        timing: Timing = constants.timing[gpu, "eager", step.like]
    except KeyError:
        raise InputError(
            repr(gpu),
            "a GPU of the calibrated model",
            "Add the GPU to data/gpus.csv and run `make calibrate`.",
            column="gpu",
        ) from None
    return iteration_at(timing, SAMPLES, 1.0)


def _sms_s(iteration: Iteration) -> float:
    """Return the GPU part without the time that waits for memory, s."""
    return iteration.gpu_s(1.0, 1.0) - iteration.memory_s - iteration.fixed_s


register_iteration_model("training", training_iteration)
