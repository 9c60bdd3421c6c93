"""Constants of GPUs and networks that were never measured, from those that were and from their features.

One path for all: a GPU takes the cells of the measured GPU of its generation that is nearest to it, multiplied by the
ratio of their speeds; a network takes those of the measured networks of its kind. The laws are fitted by
`make calibrate` and say how uncertain they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, hypot, log, sqrt

from heshare.devices.board_power import capped_clock_mhz, memory_slowdown_at
from heshare.devices.constants import (
    Constants,
    HalfPrecision,
    Load,
    Power,
    PowerLaw,
    SpeedLaw,
    Timing,
    WorkloadLaw,
    register_completion,
)
from heshare.devices.iteration_time import iteration_at
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Model

Key = tuple[str, str, str]
"""(gpu, engine, workload)."""

FULL_BATCH = 64
"""Inference batch size at which the ratio of two GPUs' speeds is applied."""
LEAST_BATCH, MOST_BATCH = 8, 1024
"""Inference batch sizes of the records that compare GPUs: outside them a time is less certain."""
ENOUGH_GPUS = 3
"""GPUs that ran a network in FP16, from which on the others take its times from the nearest of them."""
_OTHER_KIND = "transformer"
_TINY = 1e-9


def complete_catalogue(constants: Constants) -> Constants:
    """Return constants that also hold every GPU and network of the catalogue."""
    return complete(constants, catalogue.gpus(), catalogue.models())


def complete(constants: Constants, gpus: Mapping[str, Gpu], models: Mapping[str, Model]) -> Constants:
    """Return constants that also hold every GPU of `gpus` and every network of `models`, as far as there are laws."""
    measured = {gpu for gpu, _, _ in constants.timing}
    if not (measured and constants.contention and constants.laws.power and constants.laws.speed):
        return constants
    filled = _with_power(constants, gpus, constants.laws.power)
    fitted = [gpus[gpu] for gpu in gpus if gpu in measured]
    bases = {name: nearest_by(constants.laws.speed["cnn", "fp32"], card, fitted) for name, card in gpus.items()}
    half, loads = dict(filled.half), dict(filled.loads)
    for name, card in gpus.items():
        base = gpus[bases[name]]
        for (gpu, engine, kind), factors in constants.half.items():
            if gpu == base.name and (name, engine, kind) not in half:
                half[name, engine, kind] = scaled_half(constants, factors, card, base, kind)
        for (gpu, kind, precision), load in constants.loads.items():
            if gpu == base.name and (name, kind, precision) not in loads:
                uncertainty = hypot(load.uncertainty, constants.laws.power.uncertainty)
                loads[name, kind, precision] = scaled_load(load, card, base, precision, uncertainty)
    filled = replace(filled, half=half, loads=loads, half_timing=_with_half_timing(filled, gpus, models))
    return replace(filled, timing=CompletedTimings(filled, dict(gpus), dict(models), bases))


def _with_half_timing(constants: Constants, gpus: Mapping[str, Gpu], models: Mapping[str, Model]) -> dict[Key, Timing]:
    half = dict(constants.half_timing)
    for engine, name in dict.fromkeys((engine, name) for _, engine, name in constants.half_timing):
        ran = [gpus[gpu] for gpu in gpus if (gpu, engine, name) in constants.half_timing]
        for card in gpus.values() if len(ran) >= ENOUGH_GPUS else ():
            if card not in ran:
                kind = models[name].kind
                law = constants.laws.speed[kind if (kind, "fp16") in constants.laws.speed else _OTHER_KIND, "fp16"]
                base = gpus[nearest_by(law, card, ran)]
                ratio, uncertainty = speed_ratio(constants, card, base, kind, "fp16")
                timing = constants.half_timing[base.name, engine, name]
                half[card.name, engine, name] = scaled_timing(timing, card, base, constants.power, ratio, uncertainty)
    return half


def nearest_by(law: SpeedLaw, card: Gpu, measured: Sequence[Gpu]) -> str:
    """Return the name of the measured GPU whose cells a GPU takes: its own, or that of the nearest of its generation.

    A generation is whether FP32 networks run in TF32; near are those of like speed by a law.
    """
    alike = [other for other in measured if other.has_tf32 == card.has_tf32] or measured
    speed = law.log_speed(card, "fp32")
    return min(alike, key=lambda other: (other.name != card.name, abs(law.log_speed(other, "fp32") - speed))).name


def speed_ratio(constants: Constants, card: Gpu, base: Gpu, kind: str, precision: str) -> tuple[float, float]:
    """Return (speed of a GPU over that of another, its relative standard uncertainty).

    A kind of network without a law takes that of the transformers, which are as little bound by the host.
    """
    kind = kind if (kind, precision) in constants.laws.speed else _OTHER_KIND
    law = constants.laws.speed[kind, precision]
    known = constants.laws.cards.get((card.name, kind, precision))
    other = constants.laws.cards.get((base.name, kind, precision))
    offset = (0.0 if known is None else known.offset) - (0.0 if other is None else other.offset)
    ratio = exp(law.log_speed(card, precision) - law.log_speed(base, precision) + offset)
    return ratio, law.uncertainty if known is None else known.uncertainty


def scaled_half(constants: Constants, factors: HalfPrecision, card: Gpu, base: Gpu, kind: str) -> HalfPrecision:
    """Return FP16 on a GPU, from that on another: by how much more it speeds this GPU up.

    The speed in FP16 has its own uncertainty; what the FP32 row already states is taken off.
    """
    if (kind, "fp16") not in constants.laws.speed:
        kind = _OTHER_KIND  # of which both precisions were compared
    half, half_uncertainty = speed_ratio(constants, card, base, kind, "fp16")
    full, full_uncertainty = speed_ratio(constants, card, base, kind, "fp32")
    square = factors.uncertainty**2 + half_uncertainty**2 - full_uncertainty**2
    ratio = full / half
    uncertainty = sqrt(max(0.0, square))
    return replace(factors, work=factors.work * ratio, memory=factors.memory * ratio, uncertainty=uncertainty)


def scaled_load(load: Load, card: Gpu, base: Gpu, precision: str, uncertainty: float) -> Load:
    """Return the load of a GPU from that of another: the same at the peak rate of operations and peak bandwidth."""
    return replace(
        load,
        operations_s=load.operations_s * base.peak_tflops(precision) / card.peak_tflops(precision),
        traffic_s=load.traffic_s * base.mem_bw_gbs / card.mem_bw_gbs,
        uncertainty=uncertainty,
    )


def scaled_power(law: PowerLaw, card: Gpu) -> Power:
    """Return the power constants of a GPU from its limit, idle power and top clock."""
    return Power(
        idle_w=card.idle_w,
        dynamic_w=law.dynamic * (card.tdp_w - card.idle_w),
        clock_w=law.clock * (card.tdp_w - card.idle_w),
        memory=law.memory,
        knee_mhz=law.knee * card.max_mhz,
        v_min=law.v_min,
        memory_knee_mhz=law.memory_knee * card.max_mhz,
        sharing=law.sharing,
        cache_mb=law.cache * card.l2_mib,
        parked_w=law.parked * card.idle_w,
    )


def _with_power(constants: Constants, gpus: Mapping[str, Gpu], law: PowerLaw) -> Constants:
    missing = {name: scaled_power(law, card) for name, card in gpus.items() if name not in constants.power}
    contention = next(iter(constants.contention.values()))
    contentions = {**dict.fromkeys(gpus, contention), **constants.contention}
    return replace(constants, power={**constants.power, **missing}, contention=contentions)


def scaled_timing(
    timing: Timing, card: Gpu, base: Gpu, power: Mapping[str, Power], ratio: float, uncertainty: float
) -> Timing:
    """Return the timing of a network on a GPU from that on another, which is `ratio` times slower when both are full.

    Both run at the clocks that their power limits leave. What a small batch cannot parallelise goes with the speed of
    one SM; the fixed latency and the host stay.
    """
    shape = replace(timing, host_s=0.0)
    factor = _full_s(shape, base, power[base.name]) / (_full_s(shape, card, power[card.name]) * ratio)
    return replace(
        timing,
        memory_s=timing.memory_s * factor,
        work_s=timing.work_s * factor,
        work_per_sample_s=timing.work_per_sample_s * factor,
        fill_s=timing.fill_s * factor * card.sm_count / base.sm_count,
        anchored=False,
        transfer=hypot(timing.transfer, uncertainty),
        batch_low=LEAST_BATCH,
        batch_high=MOST_BATCH,
        share_low=0.0,
    )


def _full_s(shape: Timing, card: Gpu, power: Power) -> float:
    # Time of a full batch under the GPU's own power limit, if its parts were those of `shape`, s; without latency.
    iteration = iteration_at(replace(shape, latency_s=0.0), FULL_BATCH, 1.0)
    reached = capped_clock_mhz(power, [iteration], card.tdp_w, card.max_mhz, card.max_mhz)
    return iteration.gpu_s(card.max_mhz / reached, memory_slowdown_at(power, reached))


def workload_timing(law: WorkloadLaw, model: Model, known: Mapping[str, Timing], models: Mapping[str, Model]) -> Timing:
    """Return the timing of a network on a GPU from those of other networks there, `known` by name.

    The time of a sample follows the law, and latency, host and kernels the number of layers; each is the geometric
    mean over the other networks of its kind.
    """
    alike = {name: timing for name, timing in known.items() if models[name].kind == model.kind} or dict(known)
    size = {name: exp(law.log_size(model) - law.log_size(models[name])) for name in alike}
    layers = {name: model.layers / models[name].layers for name in alike}

    def mean(part: str, factors: Mapping[str, float]) -> float:
        logs = [log(max(_TINY, getattr(timing, part) * factors[name])) for name, timing in alike.items()]
        value = exp(sum(logs) / len(logs))
        return value if value > 2 * _TINY else 0.0

    return Timing(
        latency_s=mean("latency_s", layers),
        memory_s=mean("memory_s", size),
        work_s=mean("work_s", layers),
        work_per_sample_s=mean("work_per_sample_s", size),
        fill_s=mean("fill_s", layers),
        host_s=mean("host_s", layers),
        kernels=mean("kernels", layers),
        uncertainty=max(timing.uncertainty for timing in alike.values()),
        transfer=hypot(law.uncertainty, min(timing.transfer for timing in alike.values())),
        share_low=0.0,
    )


@dataclass(frozen=True, eq=False)
class CompletedTimings(Mapping[Key, Timing]):
    """Timing of every network on every GPU: measured, or derived when it is asked for.

    `bases` has the GPU whose cells a GPU takes, by name.
    """

    constants: Constants
    gpus: Mapping[str, Gpu]
    models: Mapping[str, Model]
    bases: Mapping[str, str]
    _derived: dict[Key, Timing] = field(default_factory=dict, repr=False)

    def __getitem__(self, key: Key) -> Timing:
        """Return the timing of (gpu, engine, workload)."""
        measured = self.constants.timing.get(key)
        if measured is not None:
            return measured
        if key not in self._derived:
            self._derived[key] = self._derive(*key)
        return self._derived[key]

    def __iter__(self) -> Iterator[Key]:
        """Yield the measured keys, then the others."""
        yield from self.constants.timing
        engines = dict.fromkeys(engine for _, engine, _ in self.constants.timing)
        for gpu, base in self.bases.items():
            for engine in engines:
                names = dict.fromkeys(
                    [name for other, own, name in self.constants.timing if (other, own) == (base, engine)]
                )
                for name in [*names, *(model for model in self.models if model not in names)]:
                    if (gpu, engine, name) not in self.constants.timing:
                        yield gpu, engine, name

    def __len__(self) -> int:
        """Return the number of timings."""
        return sum(1 for _ in self)

    def _derive(self, gpu: str, engine: str, workload: str) -> Timing:
        # Raise `KeyError` for a GPU or network of neither the measurements nor the catalogue.
        base = self.bases[gpu]
        if base != gpu:
            kind = self.models[workload].kind if workload in self.models else "cnn"
            ratio, uncertainty = speed_ratio(self.constants, self.gpus[gpu], self.gpus[base], kind, "fp32")
            timing = self[base, engine, workload]
            return scaled_timing(timing, self.gpus[gpu], self.gpus[base], self.constants.power, ratio, uncertainty)
        law, model = self.constants.laws.workload, self.models[workload]
        known = {
            name: timing
            for (other, own, name), timing in self.constants.timing.items()
            if (other, own) == (gpu, engine) and name in self.models
        }
        if law is None or not known:
            raise KeyError((gpu, engine, workload))
        return workload_timing(law, model, known, self.models)


register_completion(complete_catalogue)
