"""Device model: times, power and clock of any set of tasks on an emulated GPU, in closed form.

1. Each resident has an iteration with a GPU part and a host part (`heshare.devices.iteration_time`).
2. Under MPS co-runners slow the GPU part down (`heshare.devices.contention`).
3. The board draws idle and dynamic power; a limit on it lowers the clock (`heshare.devices.board_power`).

More power or clock never slows a task down in this form. More share never does either, and a co-runner never speeds a
task up, but for a few sets under a power limit, where the clock rises. The paper measures all of this on real GPUs
(Sections II-A to II-C). `data/README.md` has the constants' meaning and sources.

This covers inference under MPS, which is what the paper needs. Training and the other ways of sharing a GPU (time
slices, MIG, priorities) are models of their own beside the stages; they register here with `register_iteration_model`
and `register_sharing_model`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from heshare.devices import board_power
from heshare.devices.basis import basis_of
from heshare.devices.constants import IDLE, TOP, Constants, Power, card_row, default
from heshare.devices.contention import bandwidth_waits_s
from heshare.devices.iteration_time import Iteration, iteration_of, resident_rows
from heshare.devices.uncertainty import Spreads, Uncertainty, under_limit
from heshare.shared import plugins
from heshare.shared.arrays import FloatArray
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
        uncertainty_parts: relative standard uncertainty of `time_s`.
        arithmetic: in what it computes, `fp32`, `tf32` or `fp16`; empty where this is not recorded.
        basis: in one line, what the estimate leans on if it is not `anchored` (`heshare.devices.basis`).
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
    basis: str = ""

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
        power_uncertainty_parts: relative standard uncertainty of `power_w`.
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
    prepared = _shared(constants, gpu, tuple(residents))
    request_mhz, cap_w = _checked_request(constants, gpu, sm_mhz, power_cap_w)
    reached_mhz, power_w, times_s = _solve(prepared, request_mhz, cap_w)
    if not residents:
        return Estimate(gpu.name, reached_mhz, power_w, (), constants.spreads.of("idle"))

    demand_w = power_w
    if reached_mhz < request_mhz:
        demand_w = _solve(prepared, request_mhz, float("inf"))[1]
    limited = demand_w > power_w
    tasks = [
        _task_estimate(constants, gpu, prepared, place, resident, reached_mhz, times_s[place], limited=limited)
        for place, resident in enumerate(residents)
    ]
    power = [each.power[min(1, len(residents) - 1)] for each in prepared.iterations]
    widest = max(power, key=lambda each: each.total)
    return Estimate(gpu.name, reached_mhz, power_w, tuple(tasks), under_limit(widest, power_w, demand_w))


def co_run_rates(
    gpu: Gpu, residents: Sequence[Resident], sm_mhz: int | None = None, *, constants: Constants | None = None
) -> Rates:
    """Return the clock, power and times of `co_run`, without utilisation and uncertainty, in less time."""
    constants = constants or default()
    prepared = _shared(constants, gpu, tuple(residents))
    return _solve(prepared, *_checked_request(constants, gpu, sm_mhz, None))


class _Shared(NamedTuple):
    # Residents that share a GPU, prepared for every clock. `times_s` is None under MPS; `least` is by how much each is
    # slower than alone at 100 % by a record of co-runs, and its uncertainty.
    iterations: list[Iteration]
    rows: FloatArray
    card: FloatArray
    times_s: IterationTimes | None
    slowdown_spreads: list[float]
    least: list[tuple[float, float]]


def _checked_request(
    constants: Constants, gpu: Gpu, sm_mhz: int | None, power_cap_w: float | None
) -> tuple[float, float]:
    # (requested clock in MHz, power limit in W), checked.
    power, cap_w = _power(constants, gpu), gpu.tdp_w if power_cap_w is None else power_cap_w
    if not cap_w > power.idle_w:  # as for one that is not a number
        expected = f"more than its idle power of {power.idle_w} W"
        raise InputError(f"{cap_w} W on {gpu.name}", expected, "Raise the cap.", column="power_cap_w")
    return float(gpu.max_mhz if sm_mhz is None else gpu.check_clock(sm_mhz)), cap_w


@lru_cache(maxsize=16_384)
def _shared(constants: Constants, gpu: Gpu, residents: tuple[Resident, ...]) -> _Shared:
    power = _power(constants, gpu)
    iterations = [resident_iteration(constants, gpu.name, resident) for resident in residents]
    card = card_row(power, constants.contention[gpu.name], gpu)

    model = sharing_model(gpu, residents)
    if model is not None:
        times_s = model.iteration_times(gpu, residents, iterations)
        spreads = model.contention(gpu, residents, constants.spreads)
        return _Shared(iterations, resident_rows(iterations), card, times_s, spreads, [])

    least = _co_run_records(gpu.name, residents)
    spread = constants.spreads.beside("mps", len(residents) - 1) if len(residents) > 1 else 0.0
    spreads = [max(spread, uncertainty) for _, uncertainty in least] if least else [spread] * len(residents)
    rows = resident_rows(iterations, bandwidth_waits_s(iterations))
    return _Shared(iterations, rows, card, None, spreads, least)


def _co_run_records(gpu: str, residents: Sequence[Resident]) -> list[tuple[float, float]]:
    # (measured slowdown beside the others, its uncertainty) of each resident; empty where no record has any.
    if len(residents) < 2 or not any(one.workload.phase in _CO_RUN_RECORDS for one in residents):
        return []
    least = [(0.0, 0.0)] * len(residents)
    for phase, record in _CO_RUN_RECORDS.items():
        found = record(gpu, [resident.workload for resident in residents])
        for place, (slowdown, uncertainty) in enumerate(found):
            if residents[place].workload.phase == phase and slowdown > 1.0:
                least[place] = slowdown, uncertainty
    return least


def _solve(prepared: _Shared, request_mhz: float, cap_w: float) -> Rates:
    # Nothing keeps the clock of an empty GPU up: what holds it can release it.
    if not prepared.iterations:
        return Rates(request_mhz, float(prepared.card[IDLE]), [])
    if prepared.times_s is not None:
        at_clock = _times_at(prepared.times_s, prepared.card)
        return Rates(*board_power.reached(at_clock, prepared.rows, prepared.card, request_mhz, cap_w))

    reached_mhz, power_w, mps_times_s = board_power.solve(prepared.rows, prepared.card, request_mhz, cap_w)
    times_s = mps_times_s.tolist()
    if prepared.least:
        slowdowns = float(prepared.card[TOP]) / reached_mhz, board_power.memory_slowdown(prepared.card, reached_mhz)
        whole = [replace(one, share=1.0).time_s(*slowdowns) for one in prepared.iterations]
        least_s = [slowdown * alone_s for (slowdown, _), alone_s in zip(prepared.least, whole, strict=True)]
        times_s = [max(pair) for pair in zip(times_s, least_s, strict=True)]
        power_w = min(power_w, float(board_power.power_w(prepared.rows, prepared.card, np.array(times_s), reached_mhz)))
    return Rates(reached_mhz, power_w, times_s)


def _times_at(times_s: IterationTimes, card: FloatArray) -> Callable[[float], Sequence[float]]:
    return lambda sm_mhz: times_s(float(card[TOP]) / sm_mhz, float(board_power.memory_slowdown(card, sm_mhz)))


def _task_estimate(
    constants: Constants,
    gpu: Gpu,
    prepared: _Shared,
    place: int,
    resident: Resident,
    reached_mhz: float,
    time_s: float,
    *,
    limited: bool,
) -> TaskEstimate:
    iteration, utilisation, spreads = prepared.iterations[place], constants.utilisation, constants.spreads
    sm_slowdown = float(prepared.card[TOP]) / reached_mhz
    memory_slowdown = float(board_power.memory_slowdown(prepared.card, reached_mhz))
    sm_pct = 100.0 * iteration.batch_s * sm_slowdown / time_s
    memory_pct = 100.0 * iteration.memory_s * memory_slowdown / time_s

    # Uncertainties of times beside others under MPS were measured as such; other ways of sharing add their own.
    alone, shared = iteration.time
    uncertainty = alone
    if prepared.times_s is None and len(prepared.iterations) > 1 and shared.total:
        uncertainty = shared
    elif len(prepared.iterations) > 1 or prepared.times_s is not None:
        spread = prepared.slowdown_spreads[place]
        uncertainty = alone.beside(spread, spread)
    if limited:
        limit = spreads.of("limit")
        uncertainty = uncertainty.beside(limit.total, limit.within_framework)

    return TaskEstimate(
        workload=resident.workload.model,
        batch_size=iteration.batch_size,
        mps_pct=resident.mps_pct,
        time_s=time_s,
        sm_util_pct=sm_pct,
        dram_util_pct=min(100.0, utilisation.dram_per_sm * sm_pct + utilisation.dram_per_memory * memory_pct),
        l2_util_pct=min(100.0, utilisation.l2_per_sm * sm_pct),
        anchored=iteration.anchored,
        uncertainty_parts=uncertainty,
        arithmetic=iteration.arithmetic,
        basis=basis_of(constants, gpu, resident, iteration, time_s, sm_slowdown),
    )


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


def resident_iteration(constants: Constants, gpu: str, resident: Resident) -> Iteration:
    """Return the iteration of a resident of any phase on the GPU of that name; `InputError` for an unknown phase."""
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
