"""Cost or carbon of energy: power times a signal, integrated over a timeline, a plan, or the samples of a real run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from heshare.lab.limits.prices.energy_signal import J_PER_KWH, EnergySignal
from heshare.running.result import Run
from heshare.running.timeline import Segment
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import InputError


@dataclass(frozen=True, slots=True)
class EnergyCost:
    """What the energy of a run costs, or emits.

    Attributes:
        counts: `cost` (in the currency of the prices) or `co2_g`.
        active: of each GPU until its last task ends: the paper's active account.
        cluster: of all GPUs, idle ones included, until the makespan.
        per_kwh: mean over the energy of the active account, in money or g per kWh.
    """

    counts: str
    active: float
    cluster: float
    per_kwh: float

    def columns(self) -> dict[str, float]:
        """Return it as cells of a row: cost_active, cost_cluster and cost_per_kwh, or co2_active_g and so on."""
        name, _, unit = self.counts.partition("_")
        end = f"_{unit}" if unit else ""
        per_kwh = {f"{name}{end}_per_kwh": self.per_kwh}
        return {f"{name}_active{end}": self.active, f"{name}_cluster{end}": self.cluster, **per_kwh}


def run_cost(run: Run, signal: EnergySignal) -> EnergyCost:
    """Return what a run cost, exactly: the integral of power times signal over the segments of its timeline.

    Raises:
        InputError: only totals of the run were kept.

    Example:
        >>> import heshare as hs
        >>> run = hs.run(4, "1xT4,1xA100", "sjf")
        >>> flat = EnergySignal((0.0,), (0.2,))
        >>> round(run_cost(run, flat).active / (run.energy_active_j / 3.6e6), 9)
        0.2
    """
    if not run.record.segments:
        action = "Run it with its whole timeline."
        raise InputError("a run of which only totals were kept", "a run with a timeline", action, column="price")
    last_end_s = np.zeros(len(run.cluster))
    for interval in run.record.intervals:
        last_end_s[interval.gpu] = max(last_end_s[interval.gpu], interval.end_s)
    active = float(segment_costs(run.record.segments, last_end_s, signal).sum())
    cluster = float(segment_costs(run.record.segments, np.full(len(run.cluster), run.makespan_s), signal).sum())
    return EnergyCost(signal.counts, active, cluster, active * J_PER_KWH / run.energy_active_j)


def period_cost(run: Run, signal: EnergySignal, until_s: float, rest_w: FloatArray) -> float:
    """Return what all GPUs cost from the start to a time after the end of a run, for runs of different lengths.

    Args:
        run: with its timeline.
        signal: price or carbon over the time of the run.
        until_s: the end of the period, s, at least the makespan.
        rest_w: power of each GPU from the makespan on, W, shape (k,).
    """
    return run_cost(run, signal).cluster + signal.amount(float(rest_w.sum()), run.makespan_s, until_s)


def segment_costs(segments: Sequence[Segment], until_s: FloatArray, signal: EnergySignal) -> FloatArray:
    """Return what each GPU's energy costs from the start to `until_s`, s, shape (k,), both of shape (k,)."""
    costs = np.zeros(len(until_s))
    for segment in segments:
        end_s = min(segment.end_s, float(until_s[segment.gpu]))
        if end_s > segment.start_s:
            costs[segment.gpu] += signal.amount(segment.power_w, segment.start_s, end_s)
    return costs


def sampled_cost(samples: Iterable[tuple[float, float]], signal: EnergySignal) -> float:
    """Return what energy costs that is known at some moments only: between two of them power counts as constant.

    Args:
        samples: (time of the run, s; energy so far, J), ascending.
        signal: the signal.
    """
    total = 0.0
    for (begin_s, begin_j), (end_s, end_j) in pairwise(samples):
        if end_s > begin_s:
            total += signal.amount((end_j - begin_j) / (end_s - begin_s), begin_s, end_s)
        else:
            total += (end_j - begin_j) * signal.at(end_s) / J_PER_KWH
    return total


def journal_cost(entries: Sequence[Mapping[str, Any]], signal: EnergySignal) -> float:
    """Return what the energy of a run on real GPUs cost, from the samples of its journal, taken every 10 s.

    As in the report, energy between two sessions of the run is not counted: it is partly unknown.
    """
    total, first_at, samples = 0.0, None, [[(0.0, 0.0)]]
    begins_s = 0.0
    for entry in entries:
        if "session" in entry:
            total += sum(sampled_cost(gpu, signal) for gpu in samples)
            first_at = entry["session"]["at"] if first_at is None else first_at
            begins_s = entry["session"]["at"] - first_at
            samples = [[(begins_s, 0.0)] for _ in entry["session"]["gpus"]]
        elif "sample" in entry:
            for gpu, taken in zip(samples, entry["sample"]["gpus"], strict=True):
                gpu.append((begins_s + entry["sample"]["t"], taken["energy_j"]))
    return total + sum(sampled_cost(gpu, signal) for gpu in samples)
