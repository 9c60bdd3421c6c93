"""Time of one iteration of a workload: GPU part, host part, and their overlap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from heshare.devices.constants import Constants, HalfPrecision, Load, Timing
from heshare.devices.uncertainty import Uncertainty, outside
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.workload import Resident, Workload

OVERLAP = 8.0
"""Exponent q of `(host^q + gpu^q)^(1/q)`: how sharply the longer of host and GPU part hides the shorter.

Of 2, 4, 8 and 16 the one that explains the times alone of the recorded profiles best (a test checks it).
"""

BATCH_EXPONENT = 1.5
"""Exponent r of `(batch^r + fill^r)^(1/r)`: how an inference batch outgrows the time of one too small to fill the SMs.

Of 1, 1.5, 2 and 3 the one that explains times at 4 samples from those at 1 and 8 best (a test checks it).
"""


FUSED_TRAFFIC = 0.375
"""Layer outputs that fused operators (`tensorrt`) move over those of eager ones: median of `traffic.csv` (tested)."""


@dataclass(frozen=True, slots=True)
class WorkPower:
    """Dynamic power of the work of an iteration, over the GPU's `Power.dynamic_w`.

    Attributes:
        intensity: power of SMs that all work on it.
        operations_s: energy of its operations, as a time at full dynamic power, s.
        traffic_s: the same of its layer outputs, if all of them reach memory, s.
        working_mb: its layer outputs, which share the L2 cache with those of the co-runners, MB.
    """

    intensity: float = 1.0
    operations_s: float = 0.0
    traffic_s: float = 0.0
    working_mb: float = 0.0


def rated_energies_s(draws: Sequence[WorkPower], cache_mb: float) -> list[float]:
    """Return the energy of operations and traffic of each of several residents, as a time at full dynamic power, s.

    Of the traffic that part counts which the layer outputs of all of them miss in a cache of `cache_mb`
    (`Power.cache_mb`).
    """
    working_mb = sum(each.working_mb for each in draws)
    missed = working_mb / (working_mb + cache_mb) if working_mb else 0.0
    return [each.operations_s + missed * each.traffic_s for each in draws]


SM_TIME_ONLY = WorkPower()
"""The power of CNN inference on CUDA cores, which goes with the time of the SMs alone."""


def work_power(load: Load | None, workload: Workload) -> WorkPower:
    """Return the dynamic power of one iteration of a workload; without a load or known features: by SM time alone."""
    if load is None:
        return SM_TIME_ONLY
    if not load.operations_s and not load.traffic_s:
        return WorkPower(load.intensity)
    if workload.model not in catalogue.models():
        return SM_TIME_ONLY
    model, fp16 = catalogue.model(workload.model), workload.precision == "fp16"
    fused = FUSED_TRAFFIC if workload.engine == "tensorrt" else 1.0
    return rated_power(load, model.gflops, fused * model.activations_m, workload.batch_size, fp16=fp16)


def rated_power(load: Load, gflops: float, activations_m: float, batch_size: int, *, fp16: bool) -> WorkPower:
    """Return the dynamic power of one iteration from operations (GFLOP) and layer outputs (millions) of a sample."""
    working_mb = batch_size * activations_m * (2 if fp16 else 4)
    return WorkPower(
        intensity=load.intensity,
        operations_s=load.operations_s * batch_size * gflops,
        traffic_s=load.traffic_s * 1e-3 * 2.0 * working_mb,
        working_mb=working_mb,
    )


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of a resident at the top clock: its parts, s, with inference batch size and share folded in.

    Attributes:
        fixed_s: time that neither share nor clock changes.
        memory_s: time that waits for memory.
        base_s: time of the whole GPU's SMs whatever the inference batch size.
        batch_s: time of the whole GPU's SMs for the samples.
        fill_s: time of a batch too small to fill the SMs.
        share: its share of the SMs, 0 to 1.
        host_s: time of the host.
        kernels: kernels that an iteration launches.
        anchored: whether measurements of this workload on this GPU went into the fit.
        uncertainty: relative standard uncertainty of its time.
        load_uncertainty: relative standard uncertainty of board power under its kind of load.
        arithmetic: in what it computes, `fp32`, `tf32` or `fp16`; empty where this is not recorded.
        serial_s: time of the host that no GPU work hides, whatever the clock and the share (training, servers).
        bandwidth_s: part of `memory_s` in which it uses the whole memory bandwidth (language models).
        sms_s: time of the SMs of its share at the top clock, `base / s + ((batch / s)^r + fill^r)^(1/r)`, s.
        duty: the part of its time alone at the top clock for which the GPU works for it.
    """

    fixed_s: float
    memory_s: float
    base_s: float
    batch_s: float
    fill_s: float
    share: float
    host_s: float
    kernels: float
    batch_size: int
    anchored: bool
    uncertainty: Uncertainty
    work_power: WorkPower = SM_TIME_ONLY
    load_uncertainty: float = 0.0
    arithmetic: str = ""
    serial_s: float = 0.0
    bandwidth_s: float = 0.0
    sms_s: float = field(init=False)
    duty: float = field(init=False)

    def __post_init__(self) -> None:
        # Computed once, since every estimate of a set needs them several times.
        sms_s = self.base_s / self.share + filled(self.batch_s / self.share, self.fill_s)
        object.__setattr__(self, "sms_s", sms_s)
        time_s = self.time_s(1.0, 1.0)
        object.__setattr__(self, "duty", self.gpu_s(1.0, 1.0) / time_s if time_s else 0.0)

    @property
    def work_s(self) -> float:
        """Time for which an iteration keeps the whole GPU's SMs busy at the top clock, s, however long it takes."""
        return self.base_s + self.batch_s

    def gpu_s(self, sm_slowdown: float, memory_slowdown: float) -> float:
        """Return the GPU part, `fixed + memory mu(f) + v (base / s + ((batch / s)^r + fill^r)^(1/r))`, s.

        `sm_slowdown` is v = top clock / clock, `memory_slowdown` mu(f), the factor on memory time at the clock.
        """
        return self.fixed_s + self.memory_s * memory_slowdown + sm_slowdown * self.sms_s

    def time_s(self, sm_slowdown: float, memory_slowdown: float, contention: float = 1.0, wait_s: float = 0.0) -> float:
        """Return the time of the iteration, s: the host part and the GPU part, the latter x `contention` + `wait_s`."""
        return self.serial_s + overlap(self.host_s, self.gpu_s(sm_slowdown, memory_slowdown) * contention + wait_s)


def overlap(host_s: float, gpu_s: float) -> float:
    """Return the time of an iteration whose host part and GPU part run at once, s.

    `(host^q + gpu^q)^(1/q)` with q = `OVERLAP`, computed relative to the longer part so that no power overflows.
    """
    if host_s <= 0.0:
        return gpu_s
    longer, shorter = (gpu_s, host_s) if gpu_s > host_s else (host_s, gpu_s)
    return longer * float((1.0 + (shorter / longer) ** OVERLAP) ** (1.0 / OVERLAP))


def filled(batch_s: float, fill_s: float) -> float:
    """Return `(batch^r + fill^r)^(1/r)` with r = `BATCH_EXPONENT`, s: samples over the time too few of them take."""
    longer, shorter = (batch_s, fill_s) if batch_s > fill_s else (fill_s, batch_s)
    if shorter <= 0.0:
        return longer
    return longer * float((1.0 + (shorter / longer) ** BATCH_EXPONENT) ** (1.0 / BATCH_EXPONENT))


def filled_arrays(batch_s: FloatArray, fill_s: FloatArray) -> FloatArray:
    """Return what `filled` does for arrays of times above zero, s, of one shape."""
    longer, shorter = np.maximum(batch_s, fill_s), np.minimum(batch_s, fill_s)
    ratio = (shorter / longer) ** BATCH_EXPONENT
    return np.asarray(longer * (1.0 + ratio) ** (1.0 / BATCH_EXPONENT), dtype=np.float64)


def overlap_arrays(host_s: FloatArray, gpu_s: FloatArray) -> FloatArray:
    """Return what `overlap` does for arrays of times above zero, s, of one shape.

    numpy's powers may differ from Python's in the last bit, so a result depends on which of the two computed it.
    """
    longer, shorter = np.maximum(host_s, gpu_s), np.minimum(host_s, gpu_s)
    return np.asarray(longer * (1.0 + (shorter / longer) ** OVERLAP) ** (1.0 / OVERLAP), dtype=np.float64)


@lru_cache(maxsize=65536)
def iteration_of(constants: Constants, gpu: str, resident: Resident) -> Iteration:
    """Return the iteration of an inference resident on the GPU of that name, or an `InputError` without constants.

    That of a language model follows from its shape (`heshare.devices.language_models`).
    """
    workload = resident.workload
    key = gpu, workload.engine, workload.model
    check_precision(gpu, workload.precision)
    shape = catalogue.shape(workload.model)
    if shape is not None:
        from heshare.devices.language_models import language_iteration  # few runs need it

        return language_iteration(constants, gpu, resident, shape)
    try:
        timing = constants.timing[key]
    except KeyError:
        raise InputError(
            f"{workload.model} ({workload.engine}) on {gpu}",
            "a workload and a GPU of the calibrated model",
            "Add measurements to data/calibration and run `make calibrate`.",
            column="workload",
        ) from None
    kind = catalogue.kind(workload.model)
    half = None
    if workload.precision == "fp16" and key in constants.half_timing:
        timing = constants.half_timing[key]
    elif workload.precision == "fp16":
        half = constants.half.get((gpu, workload.engine, kind))
    load = constants.loads.get((gpu, kind, "fp16" if workload.precision == "fp16" else "fp32"))
    draws = work_power(load, workload)
    iteration = iteration_at(timing, workload.batch_size, resident.mps_pct / 100.0, half, draws)
    return replace(
        iteration,
        uncertainty=_uncertainty(constants, gpu, resident, timing, iteration),
        load_uncertainty=constants.spreads.load if load is None else load.uncertainty,
        arithmetic=arithmetic(gpu, workload.precision),
    )


def check_precision(gpu: str, precision: str) -> None:
    """Raise `InputError` for TF32 on a GPU of the catalogue whose tensor cores have none."""
    if precision == "tf32" and gpu in catalogue.gpus() and not catalogue.gpu(gpu).has_tf32:
        raise InputError(
            f"tf32 on {gpu}",
            "fp32 or fp16: TF32 came with the Ampere generation",
            "Ask for fp32, which is FP32 arithmetic there.",
            column="precision",
        )


def arithmetic(gpu: str, precision: str) -> str:
    """Return the arithmetic in which a GPU runs a network of a precision, `fp32`, `tf32` or `fp16`.

    FP32 networks run in TF32 where tensor cores have it, as in the measurements. PyTorch's default since 1.12 is TF32
    for convolutions and FP32 for matrix products.
    """
    has_tf32 = gpu in catalogue.gpus() and catalogue.gpu(gpu).has_tf32
    return "tf32" if precision == "fp32" and has_tf32 else precision


def _uncertainty(
    constants: Constants, gpu: str, resident: Resident, timing: Timing, iteration: Iteration
) -> Uncertainty:
    # The uncertainty of the time alone at the top clock: that of the row, and the spreads that apply here.
    spreads, known, workload = constants.spreads, iteration.uncertainty, resident.workload
    tensor_cores = arithmetic(gpu, workload.precision) != "fp32"
    slower = replace(iteration, host_s=iteration.host_s * math.exp(spreads.host))
    far_batch = spreads.batch * outside(timing.batch_low, timing.batch_high, workload.batch_size)
    far_share = spreads.share * outside(timing.share_low, 1.0, iteration.share)
    return Uncertainty(
        fit=known.fit,
        framework=spreads.framework(catalogue.kind(workload.model), tensor_cores=tensor_cores),
        host=math.log(slower.time_s(1.0, 1.0) / iteration.time_s(1.0, 1.0)),
        transfer=math.hypot(known.transfer, far_batch, far_share),
    )


def iteration_at(
    timing: Timing,
    batch_size: int,
    share: float,
    half: HalfPrecision | None = None,
    draws: WorkPower = SM_TIME_ONLY,
) -> Iteration:
    """Return the iteration at an inference batch size and a share of the SMs (0 to 1).

    `half` are the factors of FP16, None for FP32; `draws` is the power of its work.
    """
    work, memory, uncertainty = (1.0, 1.0, 0.0) if half is None else (half.work, half.memory, half.uncertainty)
    copy_s = 0.0 if half is None else half.copy_s * batch_size
    return Iteration(
        fixed_s=timing.latency_s + copy_s,
        memory_s=timing.memory_s * batch_size * memory,
        base_s=timing.work_s * work,
        batch_s=timing.work_per_sample_s * batch_size * work,
        fill_s=timing.fill_s * work,
        share=share,
        host_s=timing.host_s,
        kernels=timing.kernels,
        batch_size=batch_size,
        anchored=timing.anchored and half is None and not outside(timing.batch_low, timing.batch_high, batch_size),
        uncertainty=Uncertainty(fit=timing.uncertainty, transfer=math.hypot(timing.transfer, uncertainty)),
        work_power=draws,
    )
