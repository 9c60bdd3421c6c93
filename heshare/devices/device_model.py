"""Device model: times, power and clock of any set of tasks on an emulated GPU, in closed form.

Under MPS at the clock f, with v = f_max / f, resident i with the GPU part g_i and the host part h_i of its iteration
(`heshare.devices.iteration_time`) takes, with q = 8,

    time_i = (h_i^q + (g_i c (1 + strength S_i) + wait kernels_i D_i)^q)^(1/q)

- c is 1 or more: residents that together ask for more than all SMs take turns (`heshare.devices.crowding`).
- D_i is the sum of the duty cycles of its co-runners, the parts of their time for which the GPU works for them; S_i is
  the same with each co-runner weighted by its share over the task's own.
- The clock is the requested one, or lower if board power at that clock would pass the limit.

More power or clock never slows a task down in this form. More share never does either, and a co-runner never speeds a
task up, but for about 1 in 10,000 sets under a power limit, by up to 2 %: there the clock rises. The paper measures
all of this on real GPUs (Sections II-A to II-C). `data/README.md` has the constants' meaning and sources.

This covers inference under MPS, which is what the paper needs. Training and the other ways of sharing a GPU (time
slices, MIG, priorities) are models of their own beside the stages; they register here with `register_iteration_model`
and `register_sharing_model`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import NamedTuple, Protocol

from heshare.devices.board_power import (
    activity,
    board_power_w,
    highest_clock_mhz,
    memory_slowdown_at,
    power_at_times_w,
)
from heshare.devices.constants import Constants, Power, default
from heshare.devices.crowding import contention_factors, resident_parts, stretches
from heshare.devices.iteration_time import Iteration, iteration_of
from heshare.devices.uncertainty import PowerDraw, Spreads, Uncertainty, limit_spread, of_power, of_task
from heshare.shared import plugins
from heshare.shared.errors import InputError
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

IterationModel = Callable[[Constants, str, Resident], Iteration]
"""Returns the iteration of a resident on the GPU of that name."""
IterationTimes = Callable[[float, float], list[float]]
"""Returns the seconds per iteration of each resident, from (v = top clock / clock, mu = factor on memory time)."""


class SharingModel(Protocol):
    """A way of sharing a GPU other than MPS."""

    def check(self, gpu: Gpu, residents: Sequence[Resident]) -> None:
        """Raise `InputError` unless the residents can share the GPU in this way."""
        ...

    def memory_mib(self, gpu: Gpu, resident: Resident) -> float:
        """Return the device memory that the resident may use, MiB; infinite if only the GPU limits it."""
        ...

    def iteration_times(self, gpu: Gpu, residents: Sequence[Resident], parts: Sequence[Iteration]) -> IterationTimes:
        """Return the function of each resident's time at a clock; `parts` are their iterations on the whole GPU."""
        ...

    def contention(self, gpu: Gpu, residents: Sequence[Resident], spreads: Spreads) -> list[float]:
        """Return the relative standard uncertainty that this way of sharing adds to each resident's time."""
        ...


_ITERATION_MODELS: dict[str, IterationModel] = {"inference": iteration_of}
_SHARING_MODELS: dict[str, SharingModel] = {}


def register_iteration_model(phase: str, model: IterationModel) -> None:
    """Use `model` for workloads of a phase, such as `training`."""
    _ITERATION_MODELS[phase] = model
    _shared.cache_clear()


def register_sharing_model(kind: str, model: SharingModel) -> None:
    """Use `model` for residents whose way of sharing begins with `kind`, such as `mig`."""
    _SHARING_MODELS[kind] = model
    _shared.cache_clear()


CoRunRecord = Callable[[str, Sequence[Workload]], list[tuple[float, float]]]
"""Returns, from (GPU's name, workloads), the measured slowdown of each beside the others and its uncertainty; (1, 0)
where there is none."""
_CO_RUN_RECORDS: dict[str, CoRunRecord] = {}


def register_co_run_record(phase: str, record: CoRunRecord) -> None:
    """Take workloads of a phase under MPS to be at least as slow, at 100 %, as a record of co-runs says."""
    _CO_RUN_RECORDS[phase] = record


@dataclass(frozen=True, slots=True)
class TaskEstimate:
    """Estimate of one resident while all of them run.

    Attributes:
        workload: the model's name.
        batch_size: inference batch size.
        mps_pct: its MPS percentage.
        time_s: seconds per iteration.
        sm_util_pct: SM utilisation, % of the GPU.
        dram_util_pct: memory bandwidth utilisation, %.
        l2_util_pct: L2 cache utilisation, %.
        anchored: whether measurements of this workload on this GPU went into the fit.
        uncertainty_parts: relative standard uncertainty of `time_s`, by cause.
        arithmetic: in what it computes, `fp32`, `tf32` or `fp16`; empty where this is not recorded.
    """

    workload: str
    batch_size: int
    mps_pct: int
    time_s: float
    sm_util_pct: float
    dram_util_pct: float
    l2_util_pct: float
    anchored: bool
    uncertainty_parts: Uncertainty
    arithmetic: str = ""

    @property
    def uncertainty(self) -> float:
        """Return the relative standard uncertainty of `time_s` against any measurement."""
        return self.uncertainty_parts.total


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a set of residents on one GPU.

    Attributes:
        gpu: the GPU's name.
        sm_mhz: the SM clock reached, MHz.
        power_w: board power, W.
        tasks: the residents, in the order given.
        power_uncertainty_parts: relative standard uncertainty of `power_w`, by cause.
    """

    gpu: str
    sm_mhz: float
    power_w: float
    tasks: tuple[TaskEstimate, ...]
    power_uncertainty_parts: Uncertainty = field(default_factory=Uncertainty)

    @property
    def power_uncertainty(self) -> float:
        """Return the relative standard uncertainty of `power_w` against any measurement."""
        return self.power_uncertainty_parts.total


class Rates(NamedTuple):
    """What searches and policies need of an `Estimate`.

    Attributes:
        sm_mhz: the SM clock reached, MHz.
        power_w: board power, W.
        times_s: seconds per iteration of each resident, in the order given.
    """

    sm_mhz: float
    power_w: float
    times_s: list[float]


def co_run(
    gpu: Gpu,
    residents: Sequence[Resident],
    sm_mhz: int | None = None,
    *,
    power_cap_w: float | None = None,
    constants: Constants | None = None,
) -> Estimate:
    """Return times, power and clock of a GPU on which `residents` run together.

    Args:
        gpu: the GPU.
        residents: workloads with their MPS percentages, or all of them in another way of sharing; none is an idle GPU.
        sm_mhz: the requested clock, MHz; None is the top clock. The cap may leave a lower one.
        power_cap_w: the power limit, W; None is the card's own.
        constants: other constants than the calibrated ones.

    Raises:
        InputError: a clock that is not on the card's grid, a cap at or below idle power, no constants, or ways of
            sharing that do not go together on this GPU.
    """
    constants = constants or default()
    spreads = constants.spreads
    (reached_mhz, power_w, times_s), power, shared, recorded = _solve(constants, gpu, residents, sm_mhz, power_cap_w)
    if shared is None:
        return Estimate(gpu.name, reached_mhz, power_w, (), Uncertainty(fit=spreads.idle))
    slowdowns = gpu.max_mhz / reached_mhz, memory_slowdown_at(power, reached_mhz)
    if shared.model is None:
        load = activity(power, shared.iterations, *slowdowns)
        beside = [spreads.beside("mps", len(residents) - 1)] * len(residents)
        if recorded:
            beside = [max(spread, own) for spread, (_, own) in zip(beside, recorded, strict=True)]
    else:
        load = sum(
            slowdowns[0] * (one.work_s + power.memory * one.memory_s) / time_s
            for one, time_s in zip(shared.iterations, times_s, strict=True)
        )
        beside = shared.model.contention(gpu, residents, spreads)
    request_mhz = float(gpu.max_mhz if sm_mhz is None else sm_mhz)
    demand_w = power_w if reached_mhz == request_mhz else shared.drawn_w(power, request_mhz)
    draw = _draw(power, shared.iterations, (power_w, demand_w, min(demand_w, gpu.tdp_w)), load, slowdowns[0])
    tasks = _task_estimates(residents, shared.iterations, times_s, slowdowns, constants, draw, beside)
    return Estimate(gpu.name, reached_mhz, power_w, tasks, of_power(draw, spreads))


def co_run_rates(
    gpu: Gpu, residents: Sequence[Resident], sm_mhz: int | None = None, *, constants: Constants | None = None
) -> Rates:
    """Return the clock, power and times of `co_run`, without utilisation and uncertainty, in a third of its time."""
    return _solve(constants or default(), gpu, residents, sm_mhz, None)[0]


class _Shared(NamedTuple):
    # Residents that share a GPU, prepared for every clock; `model` is None under MPS.
    model: SharingModel | None
    iterations: list[Iteration]
    power: Power
    drawn_w: Callable[[Power, float], float]
    times_s: IterationTimes


def _solve(
    constants: Constants, gpu: Gpu, residents: Sequence[Resident], sm_mhz: int | None, power_cap_w: float | None
) -> tuple[Rates, Power, _Shared | None, list[tuple[float, float]]]:
    # Also the power law that holds at the clock reached, and what records of co-runs say, if any do (`_as_recorded`).
    # Without residents there is nothing shared.
    power = _power(constants, gpu)
    cap_w = gpu.tdp_w if power_cap_w is None else power_cap_w
    if not cap_w > power.idle_w:  # as for one that is not a number
        expected = f"more than its idle power of {power.idle_w} W"
        raise InputError(f"{cap_w} W on {gpu.name}", expected, "Raise the cap.", column="power_cap_w")
    request_mhz = float(gpu.max_mhz if sm_mhz is None else gpu.check_clock(sm_mhz))
    if not residents:
        # Nothing keeps the clock of an empty GPU up: what holds it can release it.
        return Rates(request_mhz, power.idle_w, []), power, None, []
    shared, top_mhz = _shared(constants, gpu, tuple(residents)), float(gpu.max_mhz)
    power, reached_mhz, power_w = _reached(shared, gpu, cap_w, request_mhz)
    slowdowns = top_mhz / reached_mhz, memory_slowdown_at(power, reached_mhz)
    times_s, recorded = shared.times_s(*slowdowns), list[tuple[float, float]]()
    if shared.model is None and len(residents) > 1 and any(one.workload.phase in _CO_RUN_RECORDS for one in residents):
        recorded = _as_recorded(gpu.name, residents, shared.iterations, slowdowns)
        if any(at_least_s > time_s for time_s, (at_least_s, _) in zip(times_s, recorded, strict=True)):
            times_s = [max(time_s, at_least_s) for time_s, (at_least_s, _) in zip(times_s, recorded, strict=True)]
            power_w = min(power_w, power_at_times_w(power, shared.iterations, times_s, reached_mhz, top_mhz))
    return Rates(reached_mhz, power_w, times_s), power, shared, recorded


@lru_cache(maxsize=16_384)
def _shared(constants: Constants, gpu: Gpu, residents: tuple[Resident, ...]) -> _Shared:
    power, top_mhz = constants.power[gpu.name], float(gpu.max_mhz)
    iterations = [_iteration(constants, gpu.name, resident) for resident in residents]
    model = sharing_model(gpu, residents)
    if model is not None:
        # Power is the idle power and that of the work which is done in the residents' time.
        # The extra power of tasks beside each other was measured under MPS only.
        shared_s = model.iteration_times(gpu, residents, iterations)

        def drawn_at_times_w(power: Power, mhz: float) -> float:
            found_s = shared_s(top_mhz / mhz, memory_slowdown_at(power, mhz))
            return power_at_times_w(power, iterations, found_s, mhz, top_mhz)

        return _Shared(model, iterations, replace(power, sharing=0.0), drawn_at_times_w, shared_s)
    contention = constants.contention[gpu.name]
    factors = contention_factors(contention, iterations)
    parts = resident_parts(iterations, power.cache_mb, factors)

    def drawn_w(power: Power, mhz: float) -> float:
        return board_power_w(power, parts, mhz, top_mhz, contention)

    def times_s(sm_slowdown: float, memory_slowdown: float) -> list[float]:
        turns = stretches(contention, parts, sm_slowdown, memory_slowdown)
        return [
            iteration.time_s(sm_slowdown, memory_slowdown, turn * factor, wait_s)
            for iteration, turn, (factor, wait_s) in zip(iterations, turns, factors, strict=True)
        ]

    return _Shared(None, iterations, power, drawn_w, times_s)


def _as_recorded(
    gpu: str, residents: Sequence[Resident], iterations: Sequence[Iteration], slowdowns: tuple[float, float]
) -> list[tuple[float, float]]:
    # (least seconds per iteration by the records of co-runs, its uncertainty) of each resident.
    least = [(0.0, 0.0)] * len(residents)
    for phase, record in _CO_RUN_RECORDS.items():
        found = record(gpu, [resident.workload for resident in residents])
        for place, (slowdown, uncertainty) in enumerate(found):
            if residents[place].workload.phase == phase and slowdown > 1.0:
                whole_s = replace(iterations[place], share=1.0).time_s(*slowdowns)
                least[place] = slowdown * whole_s, uncertainty
    return least


def _draw(
    power: Power, iterations: Sequence[Iteration], power_w: tuple[float, float, float], load: float, slowdown: float
) -> PowerDraw:
    draws = [iteration.work_power for iteration in iterations]
    rated = [each.operations_s + each.traffic_s for each in draws]
    weights = [each.intensity * one.work_s + own for each, one, own in zip(draws, iterations, rated, strict=True)]
    uncertain = sum(weight * part.load_uncertainty for weight, part in zip(weights, iterations, strict=True))
    alone = tuple(iteration.uncertainty for iteration in iterations)
    return PowerDraw(*power_w, power.idle_w, load, slowdown, uncertain / (sum(weights) or 1.0), alone)


def _task_estimates(
    residents: Sequence[Resident],
    iterations: Sequence[Iteration],
    times_s: Sequence[float],
    slowdowns: tuple[float, float],
    constants: Constants,
    draw: PowerDraw,
    contention: Sequence[float],
) -> tuple[TaskEstimate, ...]:
    sm_slowdown, memory_slowdown = slowdowns
    utilisation, spreads = constants.utilisation, constants.spreads
    limit = limit_spread(draw, spreads)
    tasks = []
    for resident, iteration, time_s, beside in zip(residents, iterations, times_s, contention, strict=True):
        sm_pct = 100.0 * iteration.work_s * sm_slowdown / time_s
        memory_pct = 100.0 * iteration.memory_s * memory_slowdown / time_s
        tasks.append(
            TaskEstimate(
                workload=resident.workload.model,
                batch_size=iteration.batch_size,
                mps_pct=resident.mps_pct,
                time_s=time_s,
                sm_util_pct=sm_pct,
                dram_util_pct=min(100.0, utilisation.dram_per_sm * sm_pct + utilisation.dram_per_memory * memory_pct),
                l2_util_pct=min(100.0, utilisation.l2_per_sm * sm_pct),
                anchored=iteration.anchored,
                uncertainty_parts=of_task(
                    iteration.uncertainty,
                    spreads,
                    slowdown=sm_slowdown,
                    contention=beside,
                    limit=limit,
                ),
                arithmetic=iteration.arithmetic,
            )
        )
    return tuple(tasks)


def _power(constants: Constants, gpu: Gpu) -> Power:
    try:
        return constants.power[gpu.name]
    except KeyError:
        raise InputError(
            repr(gpu.name),
            "one of " + ", ".join(constants.power),
            "Add the GPU to data/gpus.csv and run `make calibrate`.",
            column="gpu",
        ) from None


def sharing_model(gpu: Gpu, residents: Sequence[Resident]) -> SharingModel | None:
    """Return the model of the way in which residents share a GPU, checked (`InputError`); None for MPS."""
    if all(resident.sharing == "mps" for resident in residents):
        return None
    names = {resident.sharing for resident in residents}
    kinds = {
        next((kind for kind in plugins.names(plugins.DEVICE_MODELS) if name.startswith(kind)), name) for name in names
    }
    if len(kinds) > 1:
        raise sharing_error(" beside ".join(sorted(kinds)), "one way of sharing for all residents of a GPU", gpu)
    kind = kinds.pop()
    if kind not in _SHARING_MODELS:
        plugins.load(plugins.DEVICE_MODELS, kind)
    if kind not in _SHARING_MODELS:
        raise sharing_error(kind, "a way of sharing that a plug-in has registered", gpu)
    _SHARING_MODELS[kind].check(gpu, residents)
    return _SHARING_MODELS[kind]


def sharing_error(found: str, expected: str, gpu: Gpu) -> InputError:
    """Return the error for residents that cannot share a GPU in their way."""
    return InputError(f"{found} on {gpu.name}", expected, "Share in another way.", column="sharing")


def _reached(shared: _Shared, gpu: Gpu, cap_w: float, request_mhz: float) -> tuple[Power, float, float]:
    # The power law, the highest clock at which it keeps the limit, and the power there. Memory traffic that draws more
    # than the limit at every clock is slowed with the clock below the lowest that can be set. This is assumed: no
    # public measurement has a card there.
    power, top_mhz = shared.power, float(gpu.max_mhz)
    asked_w = shared.drawn_w(power, request_mhz)
    if asked_w <= cap_w:
        return power, request_mhz, asked_w
    try:
        reached_mhz = highest_clock_mhz(partial(shared.drawn_w, power), cap_w, request_mhz, top_mhz)
    except InputError:
        power = replace(power, memory_knee_mhz=max(power.memory_knee_mhz, float(gpu.clocks_mhz[0])))
        reached_mhz = highest_clock_mhz(partial(shared.drawn_w, power), cap_w, request_mhz, top_mhz)
    return power, reached_mhz, min(cap_w, shared.drawn_w(power, reached_mhz))


def _iteration(constants: Constants, gpu: str, resident: Resident) -> Iteration:
    phase = resident.workload.phase
    if phase not in _ITERATION_MODELS:
        plugins.load(plugins.DEVICE_MODELS, phase)
    if phase not in _ITERATION_MODELS:
        raise InputError(
            f"{resident.workload}, a workload of the phase {phase}",
            "one of " + ", ".join(_ITERATION_MODELS),
            "Install the plug-in that registers its model.",
            column="workload",
        )
    return _ITERATION_MODELS[phase](constants, gpu, resident)
