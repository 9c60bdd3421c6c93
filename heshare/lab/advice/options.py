"""Ways to run several workloads on one card: one after the other, in time slices, under MPS, in MIG instances."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from heshare.devices.constants import Constants
from heshare.devices.device_model import Estimate, co_run, co_run_rates
from heshare.devices.uncertainty import NORMAL_90, Uncertainty
from heshare.lab.systems.miso.mig import SLICES, has_mig, least, sharing_of
from heshare.lab.systems.miso.policy import best, choices
from heshare.lab.systems.shared.time_slicing import TIME_SLICE
from heshare.prediction.oracle import DevicePredictor
from heshare.scheduling.batch_model import BatchModel, unconfigured_batches
from heshare.scheduling.configuration import BatchedQueues, mps_percentages
from heshare.scheduling.objectives import Instance
from heshare.scheduling.settings import DEFAULTS
from heshare.world.cluster import Cluster
from heshare.world.gpu import Gpu, spread_clocks
from heshare.world.task import Task
from heshare.world.workload import Resident, Workload

T = TypeVar("T")
ALONE, MPS, MIG = "alone", "mps", "mig"
TITLES = {ALONE: "one after the other", MPS: "MPS", TIME_SLICE: "time slices", MIG: "MIG"}
CLOCKS = DEFAULTS.clocks
"""Clocks that are tried, evenly spread over the card's."""
SMALL = 0.03
"""A gain by less loses to a simpler way: the model cannot tell so little."""
MEASURED_SPREAD = 0.03
"""Least relative standard uncertainty of what sharing changes, where it was measured; assumed."""


class Range(NamedTuple):
    """A value and the ends of its 90 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    @property
    def change(self) -> str:
        """Return it as a change relative to 1, such as `+12 % [-3, +30]`."""
        value, low, high = (f"{100.0 * (each - 1.0):+.0f}" for each in self)
        return f"{value} % [{low}, {high}]"


class Way(NamedTuple):
    """A way to run workloads: `alone`, `mps`, `time-slice` or `mig`, and its residents."""

    name: str
    residents: tuple[Resident, ...]

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Return the workloads of the residents."""
        return tuple(one.workload for one in self.residents)

    @property
    def shares(self) -> tuple[str, ...]:
        """Return the MPS percentage or MIG instance of each workload; nothing in another way."""
        if self.name == MPS:
            return tuple(str(one.mps_pct) for one in self.residents)
        return tuple(one.sharing.removeprefix("mig-") if self.name == MIG else "" for one in self.residents)


@dataclass(frozen=True, slots=True)
class Option:
    """A way to run workloads at one clock.

    All ways are compared for the same work, in samples, with a *base*: workloads one after the other, each for the same
    time. With the samples a second r_i, a shared card does in a second what takes the base `sum r_i t_i` seconds, its
    *speed*, and `sum r_i t_i P_i` joules, over which its power is its *energy* (t_i, P_i: time of a sample and power
    in the base). The joules of a sample are those of the base times that energy.

    Intervals are 90 %. Those of speed and energy contain what a change of sharing or inference batch size adds within
    one program on one host, and both ends of the unknown inputs: the host's speed, or `measured.busy_parts`.

    Attributes:
        way: how.
        sm_mhz: the requested clock, MHz; None is the card's default.
        power_w: board power, W; one after the other, the mean.
        speed, energy: work a second and joules, over those of the same work in the base.
        per_s: samples a second of each workload; one after the other, over the time of all.
        time_s: seconds of an iteration of each while it runs.
        energy_j: joules of a sample of each.
    """

    way: Way
    sm_mhz: int | None
    power_w: float
    speed: Range
    energy: Range
    per_s: tuple[float, ...]
    time_s: tuple[Range, ...]
    energy_j: tuple[Range, ...]

    @property
    def score(self) -> float:
        """Return the mean of the work a second and the work a joule, over the base's, by which options are compared."""
        return score(self.speed.value, self.energy.value)

    def __str__(self) -> str:
        shares = " at " + ", ".join(self.way.shares) + " %" * (self.way.name == MPS) if self.way.shares[0] else ""
        return TITLES[self.way.name] + shares + ("" if self.sm_mhz is None else f", {self.sm_mhz} MHz")


class Base(NamedTuple):
    """What an option is compared with: workloads one after the other, at a clock (MHz; None is the card's default)."""

    workloads: tuple[Workload, ...]
    sm_mhz: int | None = None


def option(gpu: Gpu, way: Way, sm_mhz: int | None, variants: Sequence[Constants], base: Base) -> Option:
    """Return an option by the constants `variants[0]`, with intervals that cover the estimates of all variants."""
    n = len(way.residents)
    compared = alone(base.workloads)
    found = [
        (_estimates(gpu, way, sm_mhz, constants), _estimates(gpu, compared, base.sm_mhz, constants))
        for constants in variants
    ]
    relative = [_relative(own, earlier, way.name) for own, earlier in found]
    speed, energy = (_envelope([each[place] for each in relative]) for place in (0, 1))

    speed = speed._replace(high=min(speed.high, _most_speed(gpu, way, [before for _, before in found], variants)))
    times = [_envelope([_times(own)[at] for own, _ in found]) for at in range(n)]
    samples = [each.tasks[0].batch_size for each in found[0][1]]
    apart, joules = 0.5 * math.log(energy.high / energy.low), []
    for each, size in zip(found[0][1], samples, strict=True):
        spread = NORMAL_90 * math.hypot(each.tasks[0].uncertainty, each.power_uncertainty)
        sample_j = each.power_w * each.tasks[0].time_s / size
        joules.append(_around(sample_j * energy.value, math.hypot(spread, apart)))

    per_s = [one.batch_size / each.value for one, each in zip(way.workloads, times, strict=True)]
    power_w = found[0][0][0].power_w
    if way.name == ALONE:
        pairs = zip(found[0][1], samples, strict=True)
        per_s = [speed.value * size / (n * each.tasks[0].time_s) for each, size in pairs]
        power_w = energy.value * speed.value * sum(each.power_w for each in found[0][1]) / n
    return Option(way, sm_mhz, power_w, speed, energy, tuple(per_s), tuple(times), tuple(joules))


def _most_speed(gpu: Gpu, way: Way, bases: Sequence[Sequence[Estimate]], variants: Sequence[Constants]) -> float:
    # Neither a co-runner nor a lower clock makes a workload faster than it is alone at the default clock.
    whole = [_estimates(gpu, alone(way.workloads), None, constants) for constants in variants]
    highs = [
        max(_relative([own[at]], [base[at]], ALONE)[0].high for own, base in zip(whole, bases, strict=True))
        for at in range(len(way.residents))
    ]
    return len(highs) / sum(1.0 / high for high in highs) if way.name == ALONE else sum(highs)


def alone(workloads: Sequence[Workload]) -> Way:
    """Return the way of one after the other."""
    return Way(ALONE, tuple(map(Resident, workloads)))


def _estimates(gpu: Gpu, way: Way, sm_mhz: int | None, constants: Constants) -> list[Estimate]:
    # Of all residents together; of each by itself where they run one after the other.
    if way.name != ALONE:
        return [co_run(gpu, way.residents, sm_mhz, constants=constants)]
    known = {one: co_run(gpu, (one,), sm_mhz, constants=constants) for one in dict.fromkeys(way.residents)}
    return [known[one] for one in way.residents]


def _times(found: Sequence[Estimate]) -> list[Range]:
    tasks = [task for each in found for task in each.tasks]
    return [Range(task.time_s, *task.uncertainty_parts.interval(task.time_s)) for task in tasks]


def _relative(own: Sequence[Estimate], base: Sequence[Estimate], way: str) -> tuple[Range, Range]:
    # Speed and energy of a way over those of the same work in the base.
    tasks, before = [task for each in own for task in each.tasks], [each.tasks[0] for each in base]
    pairs = list(zip(tasks, before, strict=True))
    rates = [(task.batch_size / task.time_s) / (one.batch_size / one.time_s) for task, one in pairs]
    if way == ALONE:
        speed, powers = len(base) / sum(1.0 / rate for rate in rates), list(zip(own, base, strict=True))
        energy = sum(one.power_w / rate for rate, one in zip(rates, own, strict=True)) / sum(e.power_w for e in base)
    else:
        speed, powers = sum(rates), [(own[0], each) for each in base]
        energy = own[0].power_w / sum(rate * each.power_w for rate, each in zip(rates, base, strict=True))

    # What other inference batch sizes and co-runners under MPS change has the spread of a ratio within one program.
    anew = way == MPS or any(task.batch_size != one.batch_size for task, one in pairs)
    spreads = [_added(task.uncertainty_parts, one.uncertainty_parts, anew) for task, one in pairs]
    least = 0.0 if way == ALONE else MEASURED_SPREAD
    of_time = max(least, sum(rate * spread for rate, spread in zip(rates, spreads, strict=True)) / sum(rates))
    of_power = max(_added(one.power_uncertainty_parts, each.power_uncertainty_parts, anew) for one, each in powers)
    return _around(speed, NORMAL_90 * of_time), _around(energy, NORMAL_90 * math.hypot(of_time, of_power))


def _added(parts: Uncertainty, base: Uncertainty, anew: bool) -> float:
    # Time slices, instances and limits add their own spread to that of the time alone.
    own, other = parts.within_framework, base.within_framework
    return own if anew else min(own, math.sqrt(abs(own**2 - other**2)))


def _around(value: float, spread: float) -> Range:
    return Range(value, value * math.exp(-spread), value * math.exp(spread))


def _envelope(ranges: Sequence[Range]) -> Range:
    return Range(ranges[0].value, min(one.low for one in ranges), max(one.high for one in ranges))


def tried_clocks(gpu: Gpu) -> tuple[int | None, ...]:
    """Return the clocks that are tried, MHz: the default one (None), then `CLOCKS` of the card's from the top."""
    return None, *reversed(spread_clocks(gpu.clocks_mhz, CLOCKS))


def best_clock(gpu: Gpu, way: Way, constants: Constants) -> int | None:
    """Return the clock of `tried_clocks` with the highest score, by `simplest`."""
    base = _estimates(gpu, alone(way.workloads), None, constants)
    scores = {}
    for mhz in tried_clocks(gpu):
        speed, energy = _relative(_estimates(gpu, way, mhz, constants), base, way.name)
        scores[mhz] = score(speed.value, energy.value)
    return simplest(scores)


def score(speed: float, energy: float) -> float:
    """Return the geometric mean of the work a second and the work a joule."""
    return math.sqrt(speed / energy)


def simplest(scores: Mapping[T, float]) -> T:
    """Return the first of things, the simplest first, whose score is within `SMALL` of the highest."""
    most = max(scores.values())
    return next(one for one, score in scores.items() if score * (1.0 + SMALL) >= most)


def ways(gpu: Gpu, workloads: Sequence[Workload], needs_mib: Sequence[float], constants: Constants) -> list[Way]:
    """Return the ways to run workloads on a card, the simplest first; for one, itself alone.

    Under MPS all have 100 %, equal shares, or the shares of HeShare's step (Algorithm 1, lines 6-10, with the goal of
    Eq. 16). MIG has the partition with the least mean slowdown (MISO's search) in whose instances the workloads fit.
    """
    n, found = len(workloads), [alone(workloads)]
    if n == 1:
        return found
    if sum(needs_mib) <= gpu.memory_mib:
        shares = ((100,) * n, (100 // n,) * n, _best_shares(gpu, workloads, constants))
        found.append(Way(TIME_SLICE, tuple(Resident(one, sharing=TIME_SLICE) for one in workloads)))
        found += [Way(MPS, tuple(map(Resident, workloads, pcts))) for pcts in dict.fromkeys(shares)]
    if has_mig(gpu):
        table = []
        for one, needed_mib in zip(workloads, needs_mib, strict=True):
            inside = [Resident(one, sharing=sharing_of(gpu, slices)) for slices in SLICES]
            times_s = [co_run_rates(gpu, (each,), constants=constants).times_s[0] for each in inside]
            holds = np.array(SLICES) >= (least(gpu, needed_mib) or np.inf)
            table.append(np.where(holds, np.array(times_s) / times_s[-1], np.inf))
        if partition := best(table, choices("all")):
            pairs = zip(workloads, partition, strict=True)
            found.append(Way(MIG, tuple(Resident(one, sharing=sharing_of(gpu, slices)) for one, slices in pairs)))
    return found


def _best_shares(gpu: Gpu, workloads: Sequence[Workload], constants: Constants) -> tuple[int, ...]:
    model, n = partial(co_run_rates, constants=constants), len(workloads)
    # Each task takes one second alone.
    tasks = [Task(at, one, 1.0 / model(gpu, (Resident(one),)).times_s[0]) for at, one in enumerate(workloads)]
    ones, queue = np.ones((n, 1)), np.zeros(1, dtype=np.int64)
    instance = Instance(tuple(tasks), Cluster((gpu,)), ones, ones, ones > 0, np.zeros(n))
    split = BatchedQueues(unconfigured_batches(queue, np.arange(n)[None, :]), queue, queue)
    found = mps_percentages(split, BatchModel(instance, DevicePredictor(model)), replace(DEFAULTS, mps_goal="both"))
    return tuple(found[0].tolist())
