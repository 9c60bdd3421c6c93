"""The emulated training step: one iteration of a training workload on any GPU of the catalogue."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from heshare.devices.constants import Constants, default, fitted
from heshare.devices.device_model import register_iteration_model
from heshare.devices.iteration_time import BATCH_EXPONENT, Iteration, filled, iteration_at, iteration_of
from heshare.devices.uncertainty import Uncertainty
from heshare.lab.systems.shared import training
from heshare.lab.systems.shared.training import TrainingStep
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

LAUNCHES = 3.0
"""Kernels of a training step over those of inference: forward, backward, update; assumed."""
MEASURED = 0.05
"""Relative standard uncertainty of a step on the GPU of its record; assumed."""
MOST_MEMORY = 0.5
"""Part of the energy of a step that memory time takes at most; assumed."""


# The record of the workload gives the time of a step, the part of it in which the GPU works (its busy part), and the
# power. From these the parts of a step follow:
#
# - host: (1 - busy) of the step, in which no kernel runs. It adds to the GPU part, the same on every GPU;
# - memory: the same part of the GPU part as in the network of Table IV that the workload resembles;
# - work: time with all SMs busy, derived from the power;
# - fill: the rest, kernels too small to fill the SMs.
#
# On another GPU than that of the record the GPU part changes by the ratio of measured training throughputs, and the
# host part stays. `data/calibration/cards.csv` has throughputs of the same trainings on several GPUs, with batch sizes
# that fill them. The rate of a GPU is their geometric mean over the trainings of a kind (`cnn` or `transformer`),
# relative to one GPU; `heshare.lab.calibration.training_fit` fits it. A GPU without such a measurement is scaled from
# the measured one (with TF32 or without, as it is) that runs the resembled network of Table IV in the most similar
# time, by the ratio of the two times.


@lru_cache(maxsize=4096)
def training_iteration(constants: Constants, gpu: str, resident: Resident) -> Iteration:
    """Return the parts of a training step on `gpu` under the resident's MPS percentage."""
    step = training.step(resident.workload)
    recorded, target = (resembled(constants, name, step.like) for name in (step.gpu, gpu))
    memory_s, work_s, fill_s = _gpu_parts(step, constants, recorded)

    # Memory and SM times change by their own ratios, and the sum of both by that of the measured trainings.
    memory_s *= target.memory_s / recorded.memory_s if recorded.memory_s else 1.0
    sms_ratio = _sms_s(target) / _sms_s(recorded)
    whole_s = step.busy * step.step_s * gpu_part_ratio(constants, step.gpu, gpu, step.like)
    scale = whole_s / (memory_s + sms_ratio * float(filled(work_s, fill_s))) if whole_s else 0.0

    uncertainty, beside = _uncertainty(constants, step, gpu), constants.spreads.of("slowdown", "", "mps").total
    power = constants.spreads.of("power", "card" if gpu == step.gpu else "none", "alone")
    return Iteration(
        fixed_s=0.0,
        memory_s=memory_s * scale,
        batch_s=work_s * sms_ratio * scale,
        fill_s=fill_s * sms_ratio * scale,
        share=resident.mps_pct / 100.0,
        host_s=0.0,
        batch_size=resident.workload.batch_size,
        anchored=step.measured and gpu == step.gpu,
        serial_s=step.step_s - step.busy * step.step_s,
        intensity=full_intensity(constants, step.gpu),
        kernels=LAUNCHES * target.kernels,
        time=(uncertainty, uncertainty.beside(beside, beside)),
        power=(power, power),
    )


@lru_cache(maxsize=4096)
def busy_alone(gpu: Gpu, workload: Workload) -> float:
    """Return the GPU utilisation of a workload alone on an emulated GPU at the top clock, 0 to 1.

    This is the driver's measure: the part of the time in which some kernel runs.
    """
    iteration_model = training_iteration if workload.phase == "training" else iteration_of
    iteration = iteration_model(default(), gpu.name, Resident(workload))
    return min(1.0, iteration.gpu_s(1.0, 1.0) / iteration.time_s(1.0, 1.0))


@lru_cache(maxsize=4096)
def full_intensity(constants: Constants, gpu: str) -> float:
    """Return the intensity of the trainings recorded on a GPU: their dynamic power over that of CNN inference in FP32.

    The training with the highest power is assumed to keep all SMs busy.
    """
    steps = [step for step in map(training.step, training.workloads()) if step.gpu == gpu]
    power = constants.power[gpu]
    busy_w = [step.dynamic_w / step.busy for step in steps if step.measured]
    return (max(busy_w, default=power.dynamic_w) - power.clock_w) / power.dynamic_w


def _uncertainty(constants: Constants, step: TrainingStep, gpu: str) -> Uncertainty:
    """Return the uncertainty of a step: on another GPU than that of its record, ratio and host are added."""
    if gpu == step.gpu:
        return Uncertainty(MEASURED, MEASURED)
    host = fitted("training")["", "", ""]["host"]
    within = math.hypot(MEASURED, ratio_uncertainty(constants, step.gpu, gpu, step.like))
    return Uncertainty(math.hypot(host, within), within)


def _gpu_parts(step: TrainingStep, constants: Constants, like: Iteration) -> tuple[float, float, float]:
    """Return (memory, work, fill) of the GPU part on the GPU of the record, s."""
    power = constants.power[step.gpu]
    gpu_s = step.busy * step.step_s
    # The clocks draw power while any kernel runs; the rest is that of the work. The idle GPU of a record held its
    # clock, so that `idle_clock_w` is not in it.
    above_w = max(0.0, step.dynamic_w - step.busy * power.clock_w)
    energy_s = min(above_w / (power.dynamic_w * full_intensity(constants, step.gpu)), step.busy) * step.step_s
    memory_s = gpu_s * like.memory_s / like.gpu_s(1.0, 1.0)
    if 0 < power.memory < 1:
        # Waiting for memory draws less power than work. So the energy bounds memory time twice: it takes at most
        # MOST_MEMORY of the energy, and the remaining energy must fit into the remaining time.
        memory_s = min(memory_s, MOST_MEMORY * energy_s / power.memory, (gpu_s - energy_s) / (1 - power.memory))
    rest_s = gpu_s - memory_s
    work_s = min(energy_s - power.memory * memory_s, rest_s)
    # The fill with which `filled(work, fill)` is the rest.
    part = work_s / rest_s if rest_s else 1.0
    return memory_s, work_s, rest_s * (1.0 - part**BATCH_EXPONENT) ** (1.0 / BATCH_EXPONENT)


def _sms_s(iteration: Iteration) -> float:
    """Return the GPU part without the time that waits for memory, s."""
    return iteration.gpu_s(1.0, 1.0) - iteration.memory_s - iteration.fixed_s


register_iteration_model("training", training_iteration)


SAMPLES = 32
"""Inference batch size at which the network of Table IV is compared between GPUs; assumed."""

Rates = Mapping[tuple[str, str], float]
"""Relative speed by (gpu, kind)."""


def training_kind(like: str) -> str:
    """Return the kind of a training, `cnn` or `transformer`: that of the network of Table IV that it resembles.

    Training has no decoding, so that a network which decodes in inference trains like one on whole sequences.
    """
    return "cnn" if catalogue.kind(like) == "cnn" else "transformer"


def resembled(constants: Constants, gpu: str, like: str) -> Iteration:
    """Return an iteration on `gpu` of the network of Table IV that a training resembles, in TF32 as recorded."""
    in_tf32 = "tf32" if _has_tf32(gpu) else "fp32"
    timing = constants.timing.get((gpu, "eager", like, in_tf32))
    if timing is None:
        raise InputError(
            repr(gpu),
            "a GPU of the calibrated model",
            "Add the GPU to data/gpus.csv and run `make calibrate`.",
            column="gpu",
        )
    return iteration_at(timing, SAMPLES, 1.0)


def measured_rates() -> dict[tuple[str, str], float]:
    return {(gpu, kind): values["rate"] for (gpu, _, kind), values in fitted("training").items() if gpu}


@lru_cache(maxsize=4096)
def gpu_part_ratio(constants: Constants, recorded: str, target: str, like: str) -> float:
    """Return the GPU part of a training on the GPU `target` over that on `recorded`."""
    if recorded == target:
        return 1.0
    rates = measured_rates()
    return rate(constants, rates, recorded, like) / rate(constants, rates, target, like)


def rate(constants: Constants, rates: Rates, gpu: str, like: str) -> float:
    """Return the rate of a GPU for trainings that resemble `like`, in the unit of `rates`."""
    kind = training_kind(like)
    if (gpu, kind) in rates:
        return rates[gpu, kind]
    hardware = _by_hardware(constants)
    own_s = resembled(hardware, gpu, like).gpu_s(1.0, 1.0)
    times_s = {
        other: resembled(hardware, other, like).gpu_s(1.0, 1.0) for other, kind_of_rate in rates if kind_of_rate == kind
    }
    if not times_s:
        return 1.0 / own_s
    alike = [other for other in times_s if _has_tf32(other) == _has_tf32(gpu)] or list(times_s)
    nearest = min(alike, key=lambda other: (abs(math.log(times_s[other] / own_s)), other))
    return rates[nearest, kind] * times_s[nearest] / own_s


@lru_cache(maxsize=64)
def _by_hardware(constants: Constants) -> Constants:
    # The emulated GPUs run programs of their own; one that all of them run leaves what differs between the GPUs.
    return replace(constants, timing=replace(constants.timing, programs={}))


def _has_tf32(gpu: str) -> bool:
    return gpu in catalogue.gpus() and catalogue.gpu(gpu).has_tf32


def ratio_uncertainty(constants: Constants, recorded: str, target: str, like: str) -> float:
    """Return the relative standard uncertainty of `gpu_part_ratio`, from trainings and GPUs that were left out."""
    if recorded == target:
        return 0.0
    errors, rates = fitted("training")["", "", ""], measured_rates()
    scaled = [errors["gpu"] for gpu in (recorded, target) if (gpu, training_kind(like)) not in rates]
    return math.hypot(errors["model"], *scaled)
