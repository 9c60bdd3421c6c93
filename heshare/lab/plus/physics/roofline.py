"""Roofline model of GPU sharing: times and power of sets of tasks, from reference rows and a few fitted constants.

Derivation. As in the roofline model (Williams et al., 2009, doi:10.1145/1498765.1498785), the resource that an
iteration occupies longest bounds its rate. Alone, an iteration has SM time w (SM utilisation x time, at the top clock),
memory time m (GPU time that keeps no SM busy) and host time h (kernel launches). At clock c (over the top clock) and
share s

    g = m mu(c) + w / (c min(1, s / f)^p),   mu(c) = max(1, k / c),   t = (h^n + g^n)^(1/n), n = 8,        (1)

where f is the share beyond which a task gains nothing, and below clock k memory requests are issued too slowly. Let
d_j = g_j / t_j be the part of its time for which task j occupies the GPU, u_j its use of memory bandwidth, l_j of the
L2 cache, and L = max(1, sum_j w_j / (c t_j)) the SM time that all tasks demand together. Beside others, task i takes

    t_i = (h_i^n + (x_i g_i)^n)^(1/n),   x_i = L^a (1 + sum_{j != i} (b1 u_j + b2 d_j + b3 l_j) / L^q).    (2)

With e_j the power above idle that task j draws alone over c V(c)^2 and its SM activity, and r_j = w_j / (c t_j) with
t_j from (2), board power is

    P = P_idle + (sum_j e_j c V(c)^2 r_j) (1 + y (sum_j r_j - max_j r_j)),                                 (3)

V(c) being constant below a knee and a straight line above. Where P exceeds the power limit, c falls until it does not.
Assumptions: a task's demand does not depend on the tasks beside it, and (1) errs by one factor for each workload, so
that times are scaled to the recorded time alone. f, p, k, a, b1, b2, b3, q, y and the curve V are fitted to the
training rows; nothing else of the GPU is given.

Example: two tasks of 10 ms each, 8 ms of it on the SMs, which draw 100 W above idle alone. Without contention (b = 0)
they demand L = 1.6, so each takes 16 ms; r = 0.5 each, so P = 50 + 100 x (0.5 + 0.5) / 0.8 = 175 W.

>>> from heshare.world.catalogue import gpu
>>> task = dict(time_s=0.010, host_s=0.001, memory_s=0.002, work_s=0.008, clock=1, dram=0.3, l2=0.2, dynamic_w=100)
>>> parts = np.array([[*task.values(), 0.8]] * 2)
>>> pair = ResidentSets.on(gpu("A100"), 50.0, parts, np.ones(2), sizes=[2], mhz=np.array([1410.0]))
>>> constants = dict(dram=0, duty_cycle=0, l2=0, oversubscription=1, share=1, sharing_power=0, dilution=0)
>>> state = Roofline(np.array([*constants.values(), 0.5, 1.0])).run(pair)
>>> print(state.time_s.round(6), state.power_w.round(3))
[0.016 0.016] [175.]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from heshare.devices.iteration_time import overlap_arrays
from heshare.lab.plus.physics.least_squares import least_squares
from heshare.prediction.features import ReferenceFeatures, interpolate_logs, is_reference, not_covered, reference_curves
from heshare.shared.arrays import FloatArray, IntArray
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

PARTS = ("time_s", "host_s", "memory_s", "work_s", "clock", "dram", "l2", "dynamic_w", "busy")
"""Columns: iteration alone (s); host time (s); GPU time that keeps no SM busy (s); SM time at the top clock (s); clock
reached, and bandwidth, L2 and SM use, as fractions; power above idle (W)."""
TIME, HOST, MEMORY, WORK, REACHED, DRAM, L2, DYNAMIC, BUSY = range(len(PARTS))
CONSTANTS = {
    "dram": (0.1, 0, 2),
    "duty_cycle": (0.05, 0, 2),
    "l2": (0.1, 0, 2),
    "oversubscription": (1, 0.3, 1.6),
    "share": (1, 0.3, 1.3),
    "sharing_power": (0.1, -0.5, 1),
    "dilution": (0.9, -0.5, 2),
    "memory_knee": (0.6, 0.05, 1),
    "usable_share": (0.95, 0.2, 1),
}
"""b1, b2, b3, a, p, y, q, k and f of the derivation: where the search for each begins, and its bounds."""
_NUMBER = {name: number for number, name in enumerate(CONSTANTS)}
_START, _LOW, _HIGH = np.array(list(CONSTANTS.values())).T.copy()
_VOLTAGE_START, _VOLTAGE_LOW, _VOLTAGE_HIGH = (0.8, 0.8), (0.3, 0.4), (0.95, 1.0)
_BISECTIONS, _SCALE = 14, 0.05
_REFERENCE_COLUMNS = ["time_s", "sm_util_pct", "dram_util_pct", "l2_util_pct", "power_w", "sm_mhz_reached"]


class IterationParts:
    """Parts of every workload's iteration alone, on every GPU that reference rows cover.

    SM utilisation times the time is SM time. The rest of the iteration is host time, or memory time and latencies. They
    differ in how they grow with the inference batch size b: host time does not, so for each GPU and model `time =
    (host^n + (m0 + m1 b + SM time)^n)^(1/n)` is fitted to its sizes. Only the reference rows of a profile table are
    read.
    """

    def __init__(self, profiles: pd.DataFrame) -> None:
        alone = profiles[is_reference(profiles)]
        idle_w = alone.groupby("gpu")["idle_w"].mean()
        self._curves = {
            key: (sizes, _fit_parts(sizes, rows, float(idle_w[key[0]]), find_gpu(key[0]).max_mhz))
            for key, sizes, rows in reference_curves(alone)
        }
        self._found: dict[tuple[str, Workload], FloatArray] = {}

    def of(self, gpu: str, workload: Workload) -> FloatArray:
        """Return the parts of one iteration alone at 100 %, shape (9,), columns as in `PARTS`.

        An inference batch size between two recorded ones is interpolated, logarithms against logarithms.

        Raises:
            InputError: the profiles do not cover the workload or the size.
        """
        if (gpu, workload) not in self._found:
            curve = self._curves.get((gpu, workload.model, workload.precision, workload.engine))
            if curve is None or not curve[0][0] <= workload.batch_size <= curve[0][-1]:
                raise not_covered(gpu, workload, "a workload and an inference batch size among the reference rows")
            self._found[gpu, workload] = interpolate_logs(workload.batch_size, *curve)
        return self._found[gpu, workload]


def _fit_parts(sizes: FloatArray, rows: pd.DataFrame, idle_w: float, max_mhz: int) -> FloatArray:
    """Return the parts of one workload at its inference batch sizes, shape (sizes, 9)."""
    time_s, sm_pct, dram_pct, l2_pct, power_w, reached_mhz = rows[_REFERENCE_COLUMNS].to_numpy(float).T
    busy, clock = np.clip(sm_pct / 100, 1e-4, 1), reached_mhz / max_mhz
    busy_s = busy * time_s

    def host_and_memory(logs: FloatArray) -> tuple[FloatArray, FloatArray]:
        host, fixed, per_sample = np.exp(logs)
        return np.full_like(time_s, host), fixed + per_sample * sizes

    def residuals(logs: FloatArray) -> FloatArray:
        host, memory = host_and_memory(logs)
        fitted = np.log(overlap_arrays(host, memory + busy_s))
        # The weak pull towards the start settles a part that the times do not show.
        return np.concatenate([fitted - np.log(time_s), 0.01 * (logs - start)])

    start = np.log([0.5 * time_s[0], 0.1 * time_s[0], 0.1 * time_s[-1] / sizes[-1]])
    logs = least_squares(residuals, start + np.array([0.3, 0, 0]), start - 12, start + 3, rounds=40)
    host_s, memory_s = host_and_memory(logs)
    dynamic_w = np.maximum(power_w - idle_w, 0.1)
    dram, l2 = np.maximum(dram_pct, 1e-3) / 100, np.maximum(l2_pct, 1e-3) / 100
    return np.column_stack([time_s, host_s, memory_s, busy_s * clock, clock, dram, l2, dynamic_w, busy])


@dataclass(frozen=True, slots=True)
class ResidentSets:
    """m sets of residents, laid end to end.

    Attributes:
        tasks: parts of each resident, columns as in `PARTS`, shape (r, 9).
        share: MPS percentage of each as a fraction, (r,).
        row: index of the set of each, ascending, (r,).
        gpus: the GPU of each set, m of them.
        clock: requested clock over the top clock, (m,).
        idle_w: power with nothing running, W, (m,).
        limit_w: power limit of each GPU, W, (m,).
        lowest: its lowest clock over its top clock, (m,).
        starts: where each set begins, (m,).
        size: residents of each set, (m,).
        names: the names of the GPUs.
        gpu_index: index of each set's GPU in `names`, (m,).
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
    size: IntArray = field(init=False)
    names: tuple[str, ...] = field(init=False)
    gpu_index: IntArray = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(dict.fromkeys(gpu.name for gpu in self.gpus))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "gpu_index", np.array([names.index(gpu.name) for gpu in self.gpus], dtype=np.int64))
        by_name = {gpu.name: (gpu.tdp_w, gpu.clocks_mhz[0] / gpu.max_mhz) for gpu in self.gpus}
        limits = np.array([by_name[gpu.name] for gpu in self.gpus]).reshape(len(self.gpus), 2)
        object.__setattr__(self, "limit_w", limits[:, 0])
        object.__setattr__(self, "lowest", limits[:, 1])
        object.__setattr__(self, "starts", np.searchsorted(self.row, np.arange(len(self.gpus))))
        object.__setattr__(self, "size", np.bincount(self.row, minlength=len(self.gpus)))

    @classmethod
    def on(
        cls, gpu: Gpu, idle_w: float, tasks: FloatArray, share: FloatArray, sizes: Sequence[int], mhz: FloatArray
    ) -> ResidentSets:
        """Return sets on one GPU: residents laid end to end, `sizes` of them in each set, at clocks `mhz` (MHz)."""
        row = np.repeat(np.arange(len(sizes)), sizes)
        return cls(tasks, share, row, (gpu,) * len(sizes), mhz / gpu.max_mhz, np.full(len(sizes), idle_w))

    @classmethod
    def of(
        cls,
        gpus: Sequence[str],
        members: Sequence[tuple[Resident, ...]],
        sm_mhz: FloatArray,
        parts: IterationParts,
        references: ReferenceFeatures,
    ) -> ResidentSets:
        """Return m sets of residents, each on a GPU of its own at a clock (MHz).

        Raises:
            InputError: the reference row of a workload is missing.
        """
        by_name = {name: find_gpu(name) for name in dict.fromkeys(gpus)}
        keys = [(name, resident.workload) for name, some in zip(gpus, members, strict=True) for resident in some]
        return cls(
            np.array([parts.of(*key) for key in keys]),
            np.array([resident.mps_pct / 100 for some in members for resident in some]),
            np.repeat(np.arange(len(members)), list(map(len, members))),
            tuple(by_name[name] for name in gpus),
            sm_mhz / np.array([by_name[name].max_mhz for name in gpus]),
            np.array([references.idle_w[name] for name in gpus]),
        )

    def pick(self, rows: IntArray) -> ResidentSets:
        """Return the sets with these numbers, in their order."""
        sizes = self.size[rows]
        row = np.repeat(np.arange(len(rows)), sizes)
        starts = np.cumsum(sizes) - sizes
        index = np.repeat(self.starts[rows] - starts, sizes) + np.arange(len(row))
        picked = object.__new__(ResidentSets)
        values = {
            "tasks": self.tasks[index],
            "share": self.share[index],
            "row": row,
            "gpus": tuple(map(self.gpus.__getitem__, rows.tolist())),
            "starts": starts,
            "names": self.names,
            **{name: getattr(self, name)[rows] for name in _BY_SET},
        }
        for name, value in values.items():
            object.__setattr__(picked, name, value)
        return picked


_BY_SET = ("clock", "idle_w", "limit_w", "lowest", "size", "gpu_index")
"""The attributes of `ResidentSets` that are arrays with one value a set."""


@dataclass(frozen=True, slots=True)
class RooflineState:
    """Predictions of the roofline for each resident (r,) and each set (m,).

    Attributes:
        time_s: time of an iteration, s, (r,).
        load: SM time over time of each, were it alone at its share, (r,).
        duty_cycle: part of the time for which each occupies the GPU, likewise, (r,).
        bandwidth: memory bandwidth of each over the peak, likewise, (r,).
        active: SM time over time of each beside its co-runners, (r,).
        power_w: power of the GPU, W, (m,).
        clock: clock reached, over the top clock, (m,).
    """

    time_s: FloatArray
    load: FloatArray
    duty_cycle: FloatArray
    bandwidth: FloatArray
    active: FloatArray
    power_w: FloatArray
    clock: FloatArray


@dataclass(frozen=True, slots=True)
class _Volts:
    """The curve V of each resident's GPU: its knee and its floor, (r,)."""

    knee: FloatArray
    floor: FloatArray

    def clock_power(self, clock: FloatArray) -> FloatArray:
        """Return c V(c)^2 at the clocks of residents, (r,)."""
        volts = np.where(clock > self.knee, 1 - (1 - clock) * (1 - self.floor) / (1 - self.knee), self.floor)
        clock_power: FloatArray = clock * volts * volts
        return clock_power


@dataclass(frozen=True, slots=True)
class _Terms:
    """What equations (1) to (3) have of each resident beside the clock, (r,).

    `memory_s` is m over its factor at the clock reached alone, `share` is min(1, s / f)^p, `per_activity_w` is e.
    """

    time_s: FloatArray
    host_s: FloatArray
    memory_s: FloatArray
    work_s: FloatArray
    dram: FloatArray
    l2: FloatArray
    share: FloatArray
    per_activity_w: FloatArray
    volts: _Volts


class Roofline:
    """Times and power of sets of residents, by equations (1) to (3) of this module.

    Args:
        constants: values of `CONSTANTS`, (9,).
        voltages: knee and floor of V, by GPU name; a GPU that is not among them has their mean.
    """

    def __init__(self, constants: FloatArray = _START, voltages: dict[str, tuple[float, float]] | None = None) -> None:
        self.constants = constants
        self.voltages = voltages or {}
        knees = list(self.voltages.values()) or [_VOLTAGE_START]
        self._mean_voltage = (sum(a for a, _ in knees) / len(knees), sum(b for _, b in knees) / len(knees))

    @classmethod
    def fit(cls, sets: ResidentSets, time_s: FloatArray, power_w: FloatArray) -> Roofline:
        """Return the roofline fitted to the times (s) of every set's first resident and the power (W), each (m,).

        A power that was not recorded is NaN. The search begins in the middle of the ranges.
        """
        start = cls()
        names = sorted({gpu.name for gpu in sets.gpus})
        has_power = np.isfinite(power_w)

        def residuals(values: FloatArray) -> FloatArray:
            state = cls._of(values, names).run(sets)
            time_gap = np.log(state.time_s[sets.starts] / time_s)
            return np.concatenate([time_gap, 2 * np.log(state.power_w[has_power] / power_w[has_power])])

        first = np.concatenate([start.constants, *([start._voltage(name) for name in names])])
        low = np.concatenate([_LOW, np.tile(_VOLTAGE_LOW, len(names))])
        high = np.concatenate([_HIGH, np.tile(_VOLTAGE_HIGH, len(names))])
        return cls._of(least_squares(residuals, first, low, high, scale=_SCALE, rounds=12), names)

    @classmethod
    def _of(cls, values: FloatArray, names: Sequence[str]) -> Roofline:
        pairs = values[len(CONSTANTS) :].reshape(-1, 2).tolist()
        return cls(values[: len(CONSTANTS)], {name: (a, b) for name, (a, b) in zip(names, pairs, strict=True)})

    def run(self, sets: ResidentSets) -> RooflineState:
        """Return the predictions for every set and resident, with the clock that each power limit leaves."""
        terms = self._terms(sets)
        state = self._at(sets, sets.clock, terms)
        over = np.flatnonzero(state.power_w > sets.limit_w)
        if over.size:
            hot = sets.pick(over)
            hot_terms = self._terms(hot)
            low, high = np.minimum(hot.lowest, hot.clock), hot.clock
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                above = self._at(hot, middle, hot_terms).power_w > hot.limit_w
                low, high = np.where(above, low, middle), np.where(above, middle, high)
            clock = sets.clock.copy()
            clock[over] = high
            state = self._at(sets, clock, terms)
        # A workload alone takes its recorded time; the bisection ends just above the limit.
        parts = sets.tasks
        alone_s = overlap_arrays(parts[:, HOST], parts[:, MEMORY] + parts[:, WORK] / parts[:, REACHED])
        time_s = state.time_s * (parts[:, TIME] / alone_s)
        return replace(state, time_s=time_s, power_w=np.minimum(state.power_w, sets.limit_w))

    def _terms(self, sets: ResidentSets) -> _Terms:
        """Return the terms of equations (1) to (3) that do not depend on the clocks, of each resident."""
        share, usable = self._named("share"), self._named("usable_share")
        time_s, host_s, memory_s, work_s, reached, dram, l2, dynamic_w, busy = np.ascontiguousarray(sets.tasks.T)
        voltages = np.array([self._voltage(name) for name in sets.names]).reshape(-1, 2)[sets.gpu_index[sets.row]]
        volts = _Volts(*np.ascontiguousarray(voltages.T))
        return _Terms(
            time_s,
            host_s,
            memory_s / np.maximum(1, self._named("memory_knee") / reached),
            work_s,
            dram,
            l2,
            np.minimum(1, sets.share / usable) ** share,
            dynamic_w / (volts.clock_power(reached) * busy),
            volts,
        )

    def _named(self, name: str) -> float:
        return float(self.constants[_NUMBER[name]])

    def _at(self, sets: ResidentSets, clock: FloatArray, terms: _Terms) -> RooflineState:
        """Return the results of equations (1) to (3) at the clocks that the GPUs run at, (m,)."""
        dram, duty, l2, oversubscription, _, sharing_power, dilution, knee, _ = self.constants.tolist()
        row = sets.row
        task_clock = clock[row]
        gpu_s = terms.memory_s * np.maximum(1, knee / task_clock) + terms.work_s / (task_clock * terms.share)
        alone = overlap_arrays(terms.host_s, gpu_s)
        load, duty_cycle = terms.work_s / task_clock / alone, gpu_s / alone
        rate = terms.time_s / alone
        bandwidth, cache = terms.dram * rate, terms.l2 * rate
        demand = np.maximum(1, _sums(load, sets))
        pressure = dram * bandwidth + duty * duty_cycle + l2 * cache
        others = _sums(pressure, sets)[row] - pressure
        # A power depends on the set alone, so it is taken before the values are spread over the residents.
        stretch = (demand**oversubscription)[row] * (1 + others / (demand**dilution)[row])
        time_s = overlap_arrays(terms.host_s, gpu_s * stretch)
        active = terms.work_s / task_clock / time_s
        beside = _sums(active, sets) - np.maximum.reduceat(active, sets.starts) if len(active) else active
        dynamic_w = terms.volts.clock_power(task_clock) * terms.per_activity_w * active
        power_w = sets.idle_w + _sums(dynamic_w, sets) * (1 + sharing_power * beside)
        return RooflineState(time_s, load, duty_cycle, bandwidth, active, power_w, clock)

    def _voltage(self, name: str) -> tuple[float, float]:
        return self.voltages.get(name, self._mean_voltage)


def _sums(values: FloatArray, sets: ResidentSets) -> FloatArray:
    sums: FloatArray = np.add.reduceat(values, sets.starts) if len(values) else np.zeros(len(sets.gpus))
    return sums
