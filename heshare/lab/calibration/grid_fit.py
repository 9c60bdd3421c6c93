"""Fit of FP16 CNNs under MPS: a public grid of inference batch size, MPS percentage and number of equal processes.

The record holds throughput and board power of an A100 and an RTX 3080 Ti. Times of one and of many processes settle how
much of an iteration no share shortens; power settles what operations, traffic of layer outputs and clocks draw
(`heshare.devices.board_power`). `power_w` is the highest reading of a window, an upper bound of the mean.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from scipy.optimize import least_squares, nnls

from heshare.devices.constants import Constants, Contention, HalfPrecision, Load, Power, Timing
from heshare.devices.derived_constants import scaled_load, workload_timing
from heshare.devices.iteration_time import filled_arrays, rated_power
from heshare.devices.uncertainty import NORMAL_90
from heshare.lab.calibration.copies_fit import copies_s
from heshare.lab.calibration.half_precision_fit import BYTES
from heshare.lab.calibration.intervals import added_spread
from heshare.lab.calibration.measurements import TimeRows, kernel_counts, records, table
from heshare.lab.calibration.power.load_fit import CARRIED, TENSOR_CARDS, UNMEASURED
from heshare.lab.calibration.time_fit import NOISE, FittedTiming, Prior, constants_of, fit_timing
from heshare.lab.calibration.timing_constants import DEFAULT_BANDWIDTH, HOST_PER_LAYER_S, TimingKey, with_kernels
from heshare.shared.arrays import BoolArray, FloatArray
from heshare.world import catalogue
from heshare.world.workload import Model

GPUS = ("A100-40GB", "RTX-3080-Ti")
SOURCE = "wuooo339/PctoDL: FP16 throughput by inference batch size, MPS percentage and processes"
CACHE = 24.0
"""`Power.cache_mb` over the L2 cache, MB a MiB: from 16 to 48 the errors hardly differ."""
_KERNELS_PER_LAYER = 1.57
_UNIT = Load(0.0, 1.0, 1.0, 0.0)
_START, _SCALE = (0.4, 1.1, 2e-4), 0.1


@dataclass(frozen=True)
class GridRows:
    """Settings of one network on one GPU of the grid, n of them, (n,) each.

    Inference batch size, share of the SMs of each process (0 to 1), processes, seconds per iteration of each, board
    power, W.
    """

    gpu: str
    model: Model
    batch: FloatArray
    share: FloatArray
    processes: FloatArray
    time_s: FloatArray
    power_w: FloatArray

    def where(self, mask: BoolArray) -> "GridRows":
        names = ("batch", "share", "processes", "time_s", "power_w")
        return replace(self, **{name: getattr(self, name)[mask] for name in names})

    def modelled_s(self, constants: FloatArray, contention: Contention, copy_s: float = 0.0) -> FloatArray:
        """Return seconds per iteration, (n,), by constants as `PARAMETERS`; `copy_s` of inputs per sample, s."""
        count = len(self.batch)
        kernels = kernel_counts().get(self.model.name, _KERNELS_PER_LAYER * self.model.layers)
        each = np.tile(constants, (count, 1))
        each[:, 0] += copy_s * self.batch
        return copies_s(each, self.batch, self.processes, np.full(count, kernels), contention, self.share)


@cache
def networks() -> dict[str, Model]:
    """Return the networks of the grid by name; those that Table IV lacks have only what times and power follow from."""
    known = catalogue.models()
    for row in records(table("mps_grid_networks")):
        name, sizes = row.workload, (float(row.gflops), 0.0, float(row.activations_m), 0.0, 0.0)
        known = {name: Model(name, name, "", "none", "cnn", int(row.layers), *sizes)} | known
    return {name: known[name] for name in sorted(set(table("mps_grid").workload))}


@cache
def grid_rows(gpu: str, name: str) -> GridRows:
    rows = table("mps_grid").query("gpu == @gpu and workload == @name")
    batch, processes = rows.batch_size.to_numpy(float), rows.processes.to_numpy(float)
    time_s = batch * processes / rows.throughput_per_s.to_numpy(float)
    share = rows.mps_pct.to_numpy(float) / 100.0
    return GridRows(gpu, networks()[name], batch, share, processes, time_s, rows.power_w.to_numpy(float))


def fit_grid_timings(contention: Contention) -> dict[TimingKey, FittedTiming]:
    """Return the times of every network of the grid, from one and from many processes."""
    return {(gpu, "eager", name): _fit_network(grid_rows(gpu, name), contention) for gpu in GPUS for name in networks()}


def of_catalogue(timings: Mapping[TimingKey, FittedTiming]) -> dict[TimingKey, FittedTiming]:
    return {key: with_kernels(key[2], fitted) for key, fitted in timings.items() if key[2] in catalogue.models()}


def _fit_network(rows: GridRows, contention: Contention) -> FittedTiming:
    alone, many = rows.where(rows.processes == 1), rows.where(rows.processes > 1)
    bytes_s = 1e9 * DEFAULT_BANDWIDTH * catalogue.gpu(rows.gpu).mem_bw_gbs
    prior = Prior(
        4e6 * rows.model.activations_m / bytes_s, rows.model.layers * HOST_PER_LAYER_S, spread=(1, 0.5, 0.8, 0.8)
    )
    times = TimeRows(alone.batch, alone.share, alone.time_s, np.full(len(alone.batch), np.nan))

    def further(q: FloatArray) -> FloatArray:
        return np.asarray(np.log(many.modelled_s(np.exp(q), contention) / many.time_s) / NOISE, dtype=np.float64)

    fitted = fit_timing(times, prior, source=SOURCE, further=further)
    errors = np.log(rows.modelled_s(constants_of(fitted.timing), contention) / rows.time_s)
    return replace(fitted, timing=replace(fitted.timing, uncertainty=float(np.sqrt(np.mean(errors**2)))))


@dataclass(frozen=True)
class HalfFit:
    """FP16 on the grid: factors on the times in FP32, and the time that copies a sample to the GPU, s."""

    work: float
    memory: float
    host: float
    copy_s: float

    def timing(self, full: Timing) -> Timing:
        factors = {"work_s": self.work, "fill_s": self.work, "work_per_sample_s": self.work}
        factors |= {"memory_s": self.memory, "host_s": self.host}
        return replace(full, **{name: getattr(full, name) * factor for name, factor in factors.items()})


def full_timing(constants: Constants, gpu: str, model: Model) -> Timing:
    """Return the time of a network in FP32 on a GPU of the grid, which the record does not hold."""
    gpu = _full_gpu(gpu)  # the 40 GB A100 has the chip of the A100 whose times were fitted
    if model.name in catalogue.models():
        return constants.timing[gpu, "eager", model.name]
    models, law = catalogue.models(), constants.laws.workload
    known = {name: constants.timing[gpu, "eager", name] for name, one in models.items() if one.kind == model.kind}
    assert law is not None
    return workload_timing(law, model, known, {**models, model.name: model})


def _full_gpu(gpu: str) -> str:
    return "A100" if gpu == "A100-40GB" else gpu


def fit_half(constants: Constants, gpu: str, names: Sequence[str]) -> HalfFit:
    """Return how networks run in FP16 on a GPU of the grid: half the bytes, less SM time, and copies of the inputs."""
    parts = [(grid_rows(gpu, name), full_timing(constants, gpu, networks()[name])) for name in names]
    memory = BYTES * catalogue.gpu(_full_gpu(gpu)).mem_bw_gbs / catalogue.gpu(gpu).mem_bw_gbs

    def fitted(q: FloatArray) -> HalfFit:
        work, host, copy_s = (float(value) for value in np.exp(q))
        return HalfFit(work, memory, host, copy_s)

    def residuals(q: FloatArray) -> FloatArray:
        half = fitted(q)
        return np.concatenate([np.log(half_s(constants, rows, full, half) / rows.time_s) for rows, full in parts])

    return fitted(least_squares(residuals, np.log(_START), loss="soft_l1", f_scale=_SCALE, diff_step=(1e-3,)).x)


def half_s(constants: Constants, rows: GridRows, full: Timing, half: HalfFit) -> FloatArray:
    """Return the seconds per iteration of settings in FP16, from a network's times in FP32, (n,)."""
    return rows.modelled_s(constants_of(half.timing(full)), constants.contention["A100"], half.copy_s)


def half_without(constants: Constants, gpu: str, name: str) -> HalfFit:
    return fit_half(constants, gpu, [other for other in networks() if other != name])


def fit_grid_halves(constants: Constants) -> dict[tuple[str, str, str], HalfPrecision]:
    """Return FP16 of eager CNNs by GPU of the grid, and of cards with the same chips and more memory.

    `constants` hold the FP32 times of every GPU. The uncertainty is what the errors of networks that are left out have
    beyond the uncertainty of these.
    """
    found = {}
    for gpu in GPUS:
        half, errors, known = fit_half(constants, gpu, list(networks())), [], []
        for name, model in networks().items():
            rows, full = grid_rows(gpu, name), full_timing(constants, gpu, model)
            modelled_s = half_s(constants, rows, full, half_without(constants, gpu, name))
            errors.append(np.log(modelled_s / rows.time_s))
            known.append(full.total_uncertainty)
        spread = added_spread(errors, known)
        found[gpu, "eager", "cnn"] = HalfPrecision(half.work, half.memory, spread, half.copy_s)
    wide = replace(found["A100-40GB", "eager", "cnn"], memory=BYTES)
    return found | {("A100", "eager", "cnn"): wide, ("RTX-3090", "eager", "cnn"): found["RTX-3080-Ti", "eager", "cnn"]}


@dataclass(frozen=True)
class WorkEnergy:
    """What a board of the grid draws for FP16 CNNs.

    Clocks, W; a GFLOP, J; a GB of layer outputs beyond the L2 cache, J. `uncertainty` is the 90th percentile of the
    error of networks left out, over 1.645.
    """

    clock_w: float
    operations_j: float
    traffic_j: float
    uncertainty: float = 0.0

    def power_w(self, rows: GridRows, timing: Timing, time_s: FloatArray) -> FloatArray:
        """Return the board power of settings that take these times, W, (n,)."""
        busy, operations, traffic = _rates(rows, timing, time_s)
        above_w = self.clock_w * busy + self.operations_j * operations + self.traffic_j * traffic
        return np.minimum(held_w(rows.gpu) + above_w, catalogue.gpu(rows.gpu).tdp_w)


@cache
def held_w(gpu: str) -> float:
    """Return the power of a GPU of the grid with its top clock held and nothing running, W."""
    rows = table("idle_power").query("gpu == @gpu and state == 'idle clock'")
    return catalogue.gpu(gpu).idle_w + float(rows.value.sum())


def _rates(rows: GridRows, timing: Timing, time_s: FloatArray) -> tuple[FloatArray, ...]:
    """(Part of the time with kernels, GFLOP/s, GB/s of layer outputs beyond the L2 cache), (n,) each."""
    latency, base, fill, memory, work, _ = constants_of(timing)
    sms = base / rows.share + filled_arrays(work * rows.batch / rows.share, np.full(len(rows.batch), fill))
    running = (latency + memory * rows.batch + sms) / time_s
    gpu = catalogue.gpu(rows.gpu)
    one = rated_power(_UNIT, rows.model.gflops, rows.model.activations_m, 1, fp16=True)
    working_mb = one.working_mb * rows.batch * rows.processes
    missed = working_mb / (working_mb + CACHE * gpu.l2_mib)
    rate = rows.batch * rows.processes / time_s
    return np.minimum(1.0, rows.processes * running), one.operations_s * rate, one.traffic_s * missed * rate


def fit_energy(
    gpu: str, timings: Mapping[TimingKey, FittedTiming], clock_w: float | None, names: Sequence[str] = ()
) -> WorkEnergy:
    """Return what the board of a GPU draws for networks (all if none is named), at the times that were measured.

    `clock_w` is the power of its clocks if another record says it, W.
    """
    chosen = [(grid_rows(gpu, name), timings[gpu, "eager", name].timing) for name in names or networks()]
    power_w = np.concatenate([rows.power_w for rows, _ in chosen])
    rates = np.concatenate([_rates(rows, timing, rows.time_s) for rows, timing in chosen], axis=1) / power_w
    busy, operations, traffic = rates
    goal = 1.0 - held_w(gpu) / power_w
    if clock_w is None:
        (operations_j, traffic_j, clock_w), _ = nnls(np.column_stack([operations, traffic, busy]), goal)
    else:
        (operations_j, traffic_j), _ = nnls(np.column_stack([operations, traffic]), goal - clock_w * busy)
    return WorkEnergy(float(clock_w), float(operations_j), float(traffic_j))


def fit_energies(timings: Mapping[TimingKey, FittedTiming], clock_w: float) -> dict[str, WorkEnergy]:
    """Return what the boards of the grid draw, by GPU; `clock_w` is the power of the A100's clocks, W."""
    energies = {}
    for gpu, known_w in zip(GPUS, (clock_w, None), strict=True):
        errors = []
        for name in networks():
            energy = fit_energy(gpu, timings, known_w, [other for other in networks() if other != name])
            rows = grid_rows(gpu, name)
            modelled_w = energy.power_w(rows, timings[gpu, "eager", name].timing, rows.time_s)
            errors.append(np.abs(np.log(modelled_w / rows.power_w)))
        uncertainty = float(np.quantile(np.concatenate(errors), 0.9)) / NORMAL_90
        energies[gpu] = replace(fit_energy(gpu, timings, known_w), uncertainty=uncertainty)
    return energies


def rated_loads(energy: Mapping[str, WorkEnergy], power: Mapping[str, Power]) -> dict[tuple[str, str, str], Load]:
    """Return the loads of CNNs on tensor cores, whose power goes with operations and traffic: (gpu, kind, precision).

    What the grid's A100 draws carries over to the other GPUs by their dynamic powers, and so does that of its clocks
    where those of a GPU are not known apart. TF32 has half the peak rate and twice the bytes of FP16.
    """
    known, like_power, base = energy["A100-40GB"], power["A100"], catalogue.gpu("A100-40GB")
    dynamic_w, spread = like_power.dynamic_w, known.uncertainty
    clocks = (like_power.clock_w + like_power.idle_clock_w) / dynamic_w
    like = Load(0.0, known.operations_j / dynamic_w, known.traffic_j / dynamic_w, spread)
    loads = {}
    for gpu, precision in product(TENSOR_CARDS, ("fp16", "fp32")):
        other = 0.0 if gpu == base.name else CARRIED if "A100" in gpu else UNMEASURED
        uncertainty = math.hypot(spread, other, 0.0 if precision == "fp16" else UNMEASURED)
        slower = base.peak_tflops("fp16") / base.peak_tflops(precision)
        here = replace(like, operations_s=slower * like.operations_s)
        own = scaled_load(here, catalogue.gpu(gpu), base, precision, uncertainty)
        # Of one chip, a byte of traffic draws as much on every card.
        loads[gpu, "cnn", precision] = replace(own, traffic_s=like.traffic_s) if "A100" in gpu else own
    for gpu in ("T4", "V100", "V100-SXM2"):
        missing = max(0.0, clocks - power[gpu].clock_w / power[gpu].dynamic_w)
        own = scaled_load(like, catalogue.gpu(gpu), base, "fp16", math.hypot(spread, 2 * CARRIED))
        loads[gpu, "cnn", "fp16"] = replace(own, intensity=missing)
    consumer, room_w = energy["RTX-3080-Ti"], power["RTX-3080-Ti"].dynamic_w
    for gpu in ("RTX-3080-Ti", "RTX-3090"):
        own = Load(0.0, consumer.operations_j / room_w, consumer.traffic_j / room_w, consumer.uncertainty)
        loads[gpu, "cnn", "fp16"] = own
        uncertainty = math.hypot(consumer.uncertainty, UNMEASURED)
        loads[gpu, "cnn", "fp32"] = replace(own, operations_s=2 * own.operations_s, uncertainty=uncertainty)
    return loads
