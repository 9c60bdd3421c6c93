"""A model of sharing from first principles: a roofline for each task, and constants learned from training rows.

It knows how GPUs work in general, not how the emulated ones are made: every constant is fitted to training rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from heshare.prediction.fitting import least_squares
from heshare.prediction.parts import PARTS, joined
from heshare.prediction.predictor import FloatArray, IntArray
from heshare.world.gpu import Gpu

TIME, HOST, MEMORY, WORK, REACHED, DRAM, L2, DYNAMIC, BUSY = range(len(PARTS))
CONSTANTS = ("dram", "duty", "l2", "crowd", "share", "sharing_power", "dilution", "memory_knee", "full")
"""Contention for bandwidth, for being there, for L2; exponents of crowding and of the share; power of company; how far
a crowd dilutes contention; the clock below which memory slows; the share that a task cannot use up."""
_START = np.array([0.1, 0.05, 0.1, 1, 1, 0.1, 0.9, 0.6, 0.95])
_LOW = np.array([0, 0, 0, 0.3, 0.3, -0.5, -0.5, 0.05, 0.2])
_HIGH = np.array([2, 2, 2, 1.6, 1.3, 1, 2, 1, 1])
_VOLTAGE_START, _VOLTAGE_LOW, _VOLTAGE_HIGH = (0.8, 0.8), (0.3, 0.4), (0.95, 1.0)
_BISECTIONS, _SCALE = 14, 0.05


@dataclass(frozen=True, slots=True)
class Sets:
    """m sets of residents, laid end to end.

    Attributes:
        tasks: parts of each resident, columns as in `heshare.prediction.parts.PARTS`, shape (r, 9).
        share: MPS percentage of each as a fraction, (r,).
        row: which set each belongs to, ascending, (r,).
        gpus: the GPU of each set, m of them.
        clock: clock asked for, over the top clock, (m,).
        idle_w: power with nothing running, W, (m,).
        limit_w: power limit of each card, W, (m,).
        lowest: its lowest clock over its top clock, (m,).
        starts: where each set begins, (m,).
        names: the names of the GPUs.
        card: which of them each set has, (m,).
    """

    tasks: FloatArray
    share: FloatArray
    row: IntArray
    gpus: tuple[Gpu, ...]
    clock: FloatArray
    idle_w: FloatArray
    limit_w: FloatArray = field(init=False)
    lowest: FloatArray = field(init=False)
    starts: IntArray = field(init=False)
    names: tuple[str, ...] = field(init=False)
    card: IntArray = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(dict.fromkeys(gpu.name for gpu in self.gpus))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "card", np.array([names.index(gpu.name) for gpu in self.gpus], dtype=np.int64))
        known = {gpu.name: (gpu.tdp_w, gpu.clocks_mhz[0] / gpu.max_mhz) for gpu in self.gpus}
        limits = np.array([known[gpu.name] for gpu in self.gpus]).reshape(len(self.gpus), 2)
        object.__setattr__(self, "limit_w", limits[:, 0])
        object.__setattr__(self, "lowest", limits[:, 1])
        object.__setattr__(self, "starts", np.searchsorted(self.row, np.arange(len(self.gpus))))

    def pick(self, rows: IntArray) -> Sets:
        """The sets with these numbers, in their order."""
        sizes = np.diff(np.append(self.starts, len(self.row)))[rows]
        row = np.repeat(np.arange(len(rows)), sizes)
        at = np.repeat(self.starts[rows] - np.cumsum(sizes) + sizes, sizes) + np.arange(len(row))
        gpus = tuple(self.gpus[one] for one in rows.tolist())
        return Sets(self.tasks[at], self.share[at], row, gpus, self.clock[rows], self.idle_w[rows])


@dataclass(frozen=True, slots=True)
class State:
    """What the model says: of each resident (r,) and of each set (m,).

    Attributes:
        time_s: time of an iteration, s, (r,).
        load: SM time that each asks for, over time, were it alone at its share, (r,).
        duty: part of the time that each keeps the GPU, likewise, (r,).
        bandwidth: memory bandwidth that each asks for, over the peak, likewise, (r,).
        active: SM time of each, over time, among the others, (r,).
        power_w: power of the GPU, W, (m,).
        clock: clock reached, over the top clock, (m,).
    """

    time_s: FloatArray
    load: FloatArray
    duty: FloatArray
    bandwidth: FloatArray
    active: FloatArray
    power_w: FloatArray
    clock: FloatArray


class Roofline:
    """Times and power of sets of residents.

    With work w (SM time at the top clock), memory m, host h, share s and clock c, an iteration alone takes
    `(h^n + g^n)^(1/n)`, `g = m mu(c) + w / (c min(1, s / full)^share)`; mu grows as 1 / c below `memory_knee`. When the
    residents ask together for more SM time than there is, every g stretches by that load to the power `crowd`; it
    stretches further with the others' use of bandwidth and L2 and with their presence. Power is idle power plus each
    resident's own power above idle, by its activity and by c V(c)^2, with V constant below a knee and straight above;
    where that passes the card's power limit, the clock falls until it does not.

    Args:
        constants: values of `CONSTANTS`, (9,).
        voltages: knee and floor of V, by GPU name; a GPU that is not among them has their mean.
    """

    def __init__(self, constants: FloatArray = _START, voltages: dict[str, tuple[float, float]] | None = None) -> None:
        self.constants = constants
        self.voltages = voltages or {}
        knees = list(self.voltages.values()) or [_VOLTAGE_START]
        self._other = (sum(a for a, _ in knees) / len(knees), sum(b for _, b in knees) / len(knees))

    @classmethod
    def fit(cls, sets: Sets, time_s: FloatArray, power_w: FloatArray, start: Roofline | None = None) -> Roofline:
        """Learn the constants from the times (s) of every set's first resident and the power (W), each (m,).

        A power that was not recorded is NaN. `start` begins the search elsewhere than in the middle.
        """
        start = start or cls()
        names = sorted({gpu.name for gpu in sets.gpus})
        known = np.isfinite(power_w)

        def gaps(constants: FloatArray) -> FloatArray:
            found = cls._of(constants, names).run(sets)
            time_gap = np.log(found.time_s[sets.starts] / time_s)
            return np.concatenate([time_gap, 2 * np.log(found.power_w[known] / power_w[known])])

        first = np.concatenate([start.constants, *([start._voltage(name) for name in names])])
        low = np.concatenate([_LOW, np.tile(_VOLTAGE_LOW, len(names))])
        high = np.concatenate([_HIGH, np.tile(_VOLTAGE_HIGH, len(names))])
        return cls._of(least_squares(gaps, first, low, high, scale=_SCALE, rounds=12), names)

    @classmethod
    def _of(cls, values: FloatArray, names: Sequence[str]) -> Roofline:
        pairs = values[len(CONSTANTS) :].reshape(-1, 2).tolist()
        return cls(values[: len(CONSTANTS)], {name: (a, b) for name, (a, b) in zip(names, pairs, strict=True)})

    def _voltage(self, name: str) -> tuple[float, float]:
        return self.voltages.get(name, self._other)

    def run(self, sets: Sets) -> State:
        """What the model says of every set and resident."""
        full = self._at(sets, sets.clock)
        over = np.flatnonzero(full.power_w > sets.limit_w)
        if not over.size:
            return self._to_the_record(sets, full)
        hot = sets.pick(over)
        low, high = np.minimum(hot.lowest, hot.clock), hot.clock
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            above = self._at(hot, middle).power_w > hot.limit_w
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        clock = sets.clock.copy()
        clock[over] = high
        return self._to_the_record(sets, self._at(sets, clock))

    def _to_the_record(self, sets: Sets, state: State) -> State:
        """Times scaled so that a workload alone takes what the record says; power within the limit."""
        parts = sets.tasks
        said = joined(parts[:, HOST], parts[:, MEMORY] + parts[:, WORK] / parts[:, REACHED])
        power_w = np.minimum(state.power_w, sets.limit_w)
        time_s = state.time_s * (parts[:, TIME] / said)
        return State(time_s, state.load, state.duty, state.bandwidth, state.active, power_w, state.clock)

    def _at(self, sets: Sets, clock: FloatArray) -> State:
        """All that follows from the clocks that the cards run at, (m,)."""
        dram, duty, l2, crowd, share, company, dilution, knee, full = self.constants.tolist()
        parts, row = sets.tasks, sets.row
        each = clock[row]
        memory = parts[:, MEMORY] / np.maximum(1, knee / parts[:, REACHED]) * np.maximum(1, knee / each)
        gpu_s = memory + parts[:, WORK] / (each * np.minimum(1, sets.share / full) ** share)
        alone = joined(parts[:, HOST], gpu_s)
        load, there = parts[:, WORK] / each / alone, gpu_s / alone
        rate = parts[:, TIME] / alone
        bandwidth, cache = parts[:, DRAM] * rate, parts[:, L2] * rate
        crowding = np.maximum(1, _sums(load, sets))
        met = dram * bandwidth + duty * there + l2 * cache
        stretch = crowding[row] ** crowd * (1 + (_sums(met, sets)[row] - met) / crowding[row] ** dilution)
        time_s = joined(parts[:, HOST], gpu_s * stretch)
        active = parts[:, WORK] / each / time_s
        own = parts[:, DYNAMIC] / (self._swing(sets, parts[:, REACHED]) * parts[:, BUSY])
        beside = _sums(active, sets) - np.maximum.reduceat(active, sets.starts) if len(active) else active
        dynamic = self._swing(sets, each) * own * active
        power_w = sets.idle_w + _sums(dynamic, sets) * (1 + company * beside)
        return State(time_s, load, there, bandwidth, active, power_w, clock)

    def _swing(self, sets: Sets, clock: FloatArray) -> FloatArray:
        """C V(c)^2 of every resident's card, (r,)."""
        voltages = np.array([self._voltage(name) for name in sets.names]).reshape(-1, 2)[sets.card[sets.row]]
        knee, floor = voltages[:, 0], voltages[:, 1]
        volts = np.where(clock > knee, 1 - (1 - clock) * (1 - floor) / (1 - knee), floor)
        swing: FloatArray = clock * volts * volts
        return swing


def _sums(values: FloatArray, sets: Sets) -> FloatArray:
    """Sums over each set's residents, (m,); every set has one at least."""
    sums: FloatArray = np.add.reduceat(values, sets.starts) if len(values) else np.zeros(len(sets.gpus))
    return sums
