"""Cost or carbon of energy: power times a signal, integrated over the timeline of a run, and predicted for plans."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from heshare.lab.limits.prices.energy_signal import J_PER_KWH, EnergySignal
from heshare.lab.limits.prices.price_terms import PriceTerms
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.timeline import Segment
from heshare.scheduling.batch_model import BatchModel
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.plan import Plan
from heshare.shared.arrays import FloatArray
from heshare.shared.errors import require

BatchPower = tuple[float, float, float]
"""Begin and end of a batch, s after the plan begins, and its mean power, W."""


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
    found, action = "a run of which only totals were kept", "Run it with its whole timeline."
    require("price", found, bool(run.record.segments), "a run with a timeline", action)
    last_end_s = np.zeros(len(run.cluster))
    for interval in run.record.intervals:
        last_end_s[interval.gpu] = max(last_end_s[interval.gpu], interval.end_s)
    active = float(segment_costs(run.record.segments, last_end_s, signal).sum())
    cluster = float(segment_costs(run.record.segments, np.full(len(run.cluster), run.makespan_s), signal).sum())
    return EnergyCost(signal.counts, active, cluster, active * J_PER_KWH / run.energy_active_j)


def period_cost(run: Run, signal: EnergySignal, until_s: float, rest_w: FloatArray) -> float:
    """Return what all GPUs cost from the start to a time after the end of a run, for runs of different lengths.

    `until_s` is at least the makespan; `rest_w` is the power of each GPU from the makespan on, W, shape (k,).
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


def plan_costs(plans: Sequence[Plan], predictor: Predictor, terms: PriceTerms) -> pd.DataFrame:
    """Return what plans of one task set on one cluster cost, as predicted: active account, mean power of each batch.

    There is at least one plan. The terms say how long a plan may wait as a whole.

    Returns:
        For each plan: cost (begun at once), wait_h (the best wait within the terms) and cost_waited (begun after it),
        or co2_g and co2_g_waited.
    """
    model = BatchModel(make_instance(plans[0].tasks, plans[0].cluster, predictor), predictor)
    signal, name = terms.signal, terms.signal.counts
    rows = []
    for plan in plans:
        batches = _batch_powers(plan, model)
        wait_s = _best_wait_s(batches, terms)
        waited = {"wait_h": wait_s / 3_600.0, f"{name}_waited": _cost(batches, signal, wait_s)}
        rows.append({name: _cost(batches, signal, 0.0), **waited})
    return pd.DataFrame(rows)


def _batch_powers(plan: Plan, model: BatchModel) -> list[BatchPower]:
    done = model.execute(model.batches_of([plan]), piecewise=True)
    gpus = [gpu for gpu, queue in enumerate(plan.queues) for _ in queue]
    now_s = [0.0] * len(plan.cluster)
    powers = []
    for gpu, length_s, energy_j in zip(gpus, done.end_s.tolist(), done.energy_j.tolist(), strict=True):
        powers.append((now_s[gpu], now_s[gpu] + length_s, energy_j / length_s))
        now_s[gpu] += length_s
    return powers


def _cost(batches: Sequence[BatchPower], signal: EnergySignal, wait_s: float) -> float:
    return sum([signal.amount(power_w, wait_s + begin_s, wait_s + end_s) for begin_s, end_s, power_w in batches])


def _best_wait_s(batches: Sequence[BatchPower], terms: PriceTerms) -> float:
    """Return the wait with the largest saving, less what each hour of waiting must save, s; by the signal's steps."""
    at_once = _cost(batches, terms.signal, 0.0)
    best_s, best = 0.0, 1e-9
    for wait_s in terms.signal.steps(0.0, terms.hold_s) if at_once > 0 else ():
        gain = 1.0 - _cost(batches, terms.signal, wait_s) / at_once - terms.saving_per_hour * wait_s / 3_600.0
        if gain > best:
            best_s, best = wait_s, gain
    return best_s
