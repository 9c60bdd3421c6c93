"""Fitted constants of the device model, from `data/calibration/constants.csv`.

`make calibrate` rewrites that file from the measurements beside it and the assumptions that it names.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from heshare.devices.uncertainty import Spreads
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Model


@dataclass(frozen=True, slots=True)
class Timing:
    """Constants of the time of one iteration, for one workload on one GPU at its top clock and at 100 %.

    With inference batch size b, share s (0 to 1), clock f and v = f_max / f, the GPU part is
    `latency + memory b mu(f) + v (work / s + ((work_per_sample b / s)^r + fill^r)^(1/r))`, r = 1.5. It overlaps with
    the host part `host` (zero for `tensorrt`). `fill` is the work that small inference batches cannot parallelise: it
    does not shrink with the share, and it fades as the batch grows.

    Attributes:
        latency_s: time that neither share nor clock changes, s.
        memory_s: time per sample that waits for memory, s.
        work_s: time of the SMs whatever the inference batch size, s.
        work_per_sample_s: time of the SMs per sample, s.
        fill_s: time of a batch too small to fill the SMs, s.
        host_s: time in which the host launches kernels, s.
        kernels: kernels that an iteration launches; each may wait for a co-runner's.
        anchored: whether measurements of this workload on this GPU went into the fit.
        uncertainty: relative standard uncertainty of the fit.
        transfer: relative standard uncertainty of the derivation from another row; 0 if `anchored`.
        batch_low, batch_high: the range of inference batch sizes that were measured; 0 where none was.
        share_low: the smallest share of the SMs that was measured, 0 to 1.
    """

    latency_s: float
    memory_s: float
    work_s: float
    work_per_sample_s: float
    fill_s: float = 0.0
    host_s: float = 0.0
    kernels: float = 0.0
    anchored: bool = False
    uncertainty: float = 0.4
    transfer: float = 0.0
    batch_low: int = 0
    batch_high: int = 0
    share_low: float = 1.0

    @property
    def total_uncertainty(self) -> float:
        """Return the relative standard uncertainty of fit and derivation together."""
        return math.hypot(self.uncertainty, self.transfer)


@dataclass(frozen=True, slots=True)
class Power:
    """Constants of the board power of one GPU.

    It is `idle(f) + V(f)^2 (f / f_max) (clock B + dynamic (X (1 + sharing Y) + Z))`. B is the part of the time in
    which some kernel runs, X and Z the work done on the SMs and in memory, and Y the part of X that runs beside
    the busiest resident (`heshare.devices.board_power`). So the energy of the work of an iteration depends on the clock
    only through the voltage.

    Attributes:
        idle_w: power with a context and nothing running, at a resting clock, W.
        dynamic_w: power of SMs that CNN inference in FP32 keeps fully active at the top clock, above idle, W.
        memory: energy of a second of memory time over that of a second of SM time.
        knee_mhz: the clock below which the voltage stays at its minimum, MHz.
        v_min: the minimum voltage over the voltage at the top clock.
        memory_knee_mhz: the clock below which memory time grows as 1/f, MHz.
        sharing: extra dynamic power per unit of co-running activity.
        parked_w: power without any context, in the lowest performance state, W.
        clock_w: power of clocks, caches and front end while any kernel runs at the top clock, W.
        idle_clock_w: what a held top clock adds to `idle_w`, W; it goes with `V(f)^2 f / f_max`.
        cache_mb: layer outputs of all residents at which half of their traffic reaches memory, MB; 0: all of it.
    """

    idle_w: float
    dynamic_w: float
    memory: float
    knee_mhz: float
    v_min: float
    memory_knee_mhz: float
    sharing: float = 0.0
    parked_w: float = 0.0
    clock_w: float = 0.0
    idle_clock_w: float = 0.0
    cache_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """Dynamic power of a kind of network in one precision on one GPU, over the GPU's `dynamic_w`.

    Attributes:
        intensity: at SMs that all work, whatever they compute.
        operations_s: energy of a GFLOP, as a time at full dynamic power, s.
        traffic_s: the same of a GB of layer outputs (written once, read once) beyond the L2 cache, s.
        uncertainty: relative standard uncertainty of board power under this load.
    """

    intensity: float
    operations_s: float
    traffic_s: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class Contention:
    """Constants of how residents under MPS slow one another down (Section II-C).

    The GPU part of a task with the share s_i grows by the factor `1 + strength sum_j duty_j s_j / s_i` over its
    co-runners j, and each of its kernels waits `wait_s sum_j duty_j` longer; `duty_j` is the part of its time for which
    co-runner j uses its share. Residents that together ask for more than all SMs take turns
    (`heshare.devices.crowding`).

    Attributes:
        strength: slowdown of the GPU part by one co-runner with a duty cycle of 1 and the same share.
        wait_s: delay of each kernel by one such co-runner, s.
        sharpness: how suddenly the SMs run out: 1 is a queue, a large number a hard limit.
        memory: part of a resident's memory time in which others cannot use its SMs.
        busy: the same of its fixed latency and of `fill`.
    """

    strength: float
    wait_s: float
    sharpness: float = 16.0
    memory: float = 1.0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class HalfPrecision:
    """FP16 of one kind of network on one GPU, from its times in FP32.

    Attributes:
        work, memory: factors on the times of SMs and memory.
        uncertainty: relative standard uncertainty.
        copy_s: time per sample in which the program of the record copies inputs to the GPU, s.
    """

    work: float
    memory: float
    uncertainty: float
    copy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Constants that turn the model's activity into the utilisations that profilers report, percent for percent.

    Attributes:
        l2_per_sm: L2 utilisation per SM utilisation.
        dram_per_sm: DRAM utilisation per SM utilisation.
        dram_per_memory: DRAM utilisation per share of the time that waits for memory.
    """

    l2_per_sm: float
    dram_per_sm: float
    dram_per_memory: float


@dataclass(frozen=True, slots=True)
class SpeedLaw:
    """How the speed of a busy GPU goes with its features, for one kind of network in one precision.

    The speed is in proportion to `peak rate ^ rate x bandwidth ^ bandwidth`; a GPU's power limit is in it.

    Attributes:
        rate: exponent of the peak rate (`Gpu.peak_tflops`).
        bandwidth: exponent of the peak memory bandwidth.
        uncertainty: relative standard uncertainty of the speed of a GPU that was left out of the fit.
    """

    rate: float
    bandwidth: float
    uncertainty: float

    def log_speed(self, card: Gpu, precision: str) -> float:
        """Return the logarithm of a GPU's speed, up to a constant."""
        return self.rate * math.log(card.peak_tflops(precision)) + self.bandwidth * math.log(card.mem_bw_gbs)


@dataclass(frozen=True, slots=True)
class CardSpeed:
    """Speed of one GPU that some record speaks of, for one kind of network in one precision.

    Attributes:
        offset: logarithm of its speed over that of the law.
        uncertainty: relative standard uncertainty of its speed over that of the GPU whose cells it takes.
    """

    offset: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """Power constants of a GPU without measurements of power, over its features.

    Attributes:
        dynamic: `Power.dynamic_w` over the power limit less the idle power.
        clock: `Power.clock_w` over the same.
        knee: `Power.knee_mhz` over the top clock.
        memory_knee: `Power.memory_knee_mhz` over the top clock.
        v_min, memory, sharing: as in `Power`.
        cache: `Power.cache_mb` over the L2 cache, MB a MiB.
        parked: `Power.parked_w` over the idle power.
        uncertainty: relative standard uncertainty of the power above idle of a GPU that was left out.
    """

    dynamic: float
    clock: float
    knee: float
    memory_knee: float
    v_min: float
    memory: float
    sharing: float
    cache: float
    parked: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class WorkloadLaw:
    """How the time of a sample goes with a network's features.

    The time is in proportion to `operations ^ gflops x activations ^ activations x layers ^ layers`.

    Attributes:
        gflops, activations, layers: exponents.
        uncertainty: relative standard uncertainty of a network that was left out of the fit.
    """

    gflops: float
    activations: float
    layers: float
    uncertainty: float

    def log_size(self, model: Model) -> float:
        """Return the logarithm of the time of a sample, up to a constant."""
        logs = math.log(model.gflops), math.log(model.activations_m), math.log(model.layers)
        return self.gflops * logs[0] + self.activations * logs[1] + self.layers * logs[2]


@dataclass(frozen=True, slots=True)
class Laws:
    """All laws.

    Attributes:
        speed: of GPUs, by (kind of network, precision).
        cards: speed of the GPUs that a record speaks of, by (gpu, kind of network, precision).
        power: of GPUs.
        workload: of networks.
    """

    speed: Mapping[tuple[str, str], SpeedLaw] = field(default_factory=dict)
    cards: Mapping[tuple[str, str, str], CardSpeed] = field(default_factory=dict)
    power: PowerLaw | None = None
    workload: WorkloadLaw | None = None


@dataclass(frozen=True, eq=False)
class Constants:
    """All fitted constants. Compared by identity, so that they can key a cache.

    Attributes:
        timing: by (gpu, engine, workload).
        power: by gpu.
        contention: by gpu.
        half: factors of FP16 on the times of FP32, by (gpu, engine, kind of network).
        utilisation: of the reported utilisations.
        loads: dynamic power by kind of load, by (gpu, kind of network, precision); 1 for a kind that it lacks.
        spreads: of the uncertainty that no single row holds.
        laws: for GPUs and networks without measurements.
        half_timing: times in FP16 where they were measured, by (gpu, engine, workload); `half` stands for the others.
    """

    timing: Mapping[tuple[str, str, str], Timing]
    power: Mapping[str, Power]
    contention: Mapping[str, Contention]
    half: Mapping[tuple[str, str, str], HalfPrecision]
    utilisation: Utilisation = Utilisation(0.0, 0.0, 1.0)
    loads: Mapping[tuple[str, str, str], Load] = field(default_factory=dict)
    spreads: Spreads = field(default_factory=Spreads)
    laws: Laws = field(default_factory=Laws)
    half_timing: Mapping[tuple[str, str, str], Timing] = field(default_factory=dict)

    def with_power(self, gpu: str, **changes: float) -> Constants:
        """Return a copy with other power constants for one GPU, for a sensitivity study."""
        return replace(self, power={**self.power, gpu: replace(self.power[gpu], **changes)})


def read(path: Path) -> Constants:
    """Return the constants of a long CSV file with the columns kind, gpu, engine, workload, name, value, ...

    Only those that were fitted: `default` adds the GPUs and networks without measurements.

    Raises:
        InputError: a value is not a number.
    """
    timing: dict[tuple[str, str, str], Timing] = {}
    half_timing: dict[tuple[str, str, str], Timing] = {}
    power, contention, half, loads = {}, {}, {}, {}
    speed, cards, power_law, workload_law = {}, {}, None, None
    utilisation, spreads = Constants.utilisation, Spreads()
    for (kind, gpu, engine, workload), fields in _fields(path).items():
        try:
            values = {name: float(text) for name, text in fields.items()}
        except ValueError as error:
            raise InputError(str(error), "a number", "Run `make calibrate` to rewrite the file.", file=path) from None
        if kind in ("timing", "fp16 timing"):
            low, high = (int(values.pop(name, 0)) for name in ("batch_low", "batch_high"))
            anchored = bool(values.pop("anchored"))
            rows = timing if kind == "timing" else half_timing
            rows[gpu, engine, workload] = Timing(anchored=anchored, batch_low=low, batch_high=high, **values)
        elif kind == "power":
            power[gpu] = Power(**values)
        elif kind == "contention":
            contention[gpu] = Contention(**values)
        elif kind == "fp16":
            half[gpu, engine, workload] = HalfPrecision(**values)
        elif kind == "load":
            loads[gpu, workload, engine] = Load(**values)
        elif kind == "utilisation":
            utilisation = Utilisation(**values)
        elif kind == "uncertainty":
            spreads = Spreads(**values)
        elif kind == "speed law":
            speed[workload, engine] = SpeedLaw(**values)
        elif kind == "card speed":
            cards[gpu, workload, engine] = CardSpeed(**values)
        elif kind == "power law":
            power_law = PowerLaw(**values)
        elif kind == "workload law":
            workload_law = WorkloadLaw(**values)
    laws = Laws(speed, cards, power_law, workload_law)
    return Constants(timing, power, contention, half, utilisation, loads, spreads, laws, half_timing)


Completion = Callable[[Constants], Constants]
"""Returns constants with what was not measured as well."""
_COMPLETIONS: list[Completion] = []


def register_completion(completion: Completion) -> None:
    """Use `completion` for the constants of `default`."""
    _COMPLETIONS.append(completion)


@cache
def default() -> Constants:
    """Return the constants of `data/calibration/constants.csv` and those that follow from them for what it lacks.

    They hold every GPU of `data/gpus.csv` and every network of `data/workloads.csv` (`derived_constants`).
    """
    constants = read(files.data("calibration", "constants.csv"))
    for completion in _COMPLETIONS:
        constants = completion(constants)
    return constants


@cache
def fitted(kind: str) -> Mapping[tuple[str, str, str], Mapping[str, float]]:
    """Return the fitted constants of a room, such as `training`: values by name, by (gpu, engine, workload)."""
    fields = _fields(files.data("calibration", "constants.csv"))
    return {
        (gpu, engine, workload): {name: float(text) for name, text in values.items()}
        for (own_kind, gpu, engine, workload), values in fields.items()
        if own_kind == kind
    }


def _fields(path: Path) -> dict[tuple[str, ...], dict[str, str]]:
    table: dict[tuple[str, ...], dict[str, str]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            key = (row["kind"], row["gpu"], row["engine"], row["workload"])
            table.setdefault(key, {})[row["name"]] = row["value"]
    return table
