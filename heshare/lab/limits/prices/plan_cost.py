"""Predicted cost of plans under a price or carbon signal, begun at once and after waiting for cheap energy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heshare.lab.limits.prices.energy_signal import EnergySignal
from heshare.lab.limits.prices.price_terms import PriceTerms
from heshare.prediction.predictor import Predictor
from heshare.scheduling.batch_model import DEFAULT_CLOCK, EMPTY, Batches, BatchModel
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.plan import Plan

BatchPower = tuple[float, float, float]
"""Begin and end of a batch, s after the plan begins, and its mean power, W."""


def plan_costs(
    plans: Sequence[Plan], predictor: Predictor, terms: PriceTerms, *, piecewise: bool = True
) -> pd.DataFrame:
    """Return what plans of one task set on one cluster cost, as predicted: active account, mean power of each batch.

    Args:
        plans: at least one.
        predictor: of the scheduler.
        terms: the signal, and how long a plan may wait as a whole.
        piecewise: whether tasks speed up when others of their batch end.

    Returns:
        For each plan: cost (begun at once), wait_h (the best wait within the terms) and cost_waited (begun after it),
        or co2_g and co2_g_waited.
    """
    instance = make_instance(plans[0].tasks, plans[0].cluster, predictor)
    model, signal, name = BatchModel(instance, predictor), terms.signal, terms.signal.counts
    rows = []
    for plan in plans:
        batches = _batch_powers(plan, model, instance.kind_of, piecewise)
        wait_s = _best_wait_s(batches, terms)
        waited = {"wait_h": wait_s / 3_600.0, f"{name}_waited": _cost(batches, signal, wait_s)}
        rows.append({name: _cost(batches, signal, 0.0), **waited})
    return pd.DataFrame(rows)


def _batch_powers(plan: Plan, model: BatchModel, kind_of: np.ndarray, piecewise: bool) -> list[BatchPower]:
    place = {task.id: index for index, task in enumerate(plan.tasks)}
    found = [(gpu, batch) for gpu, queue in enumerate(plan.queues) for batch in queue]
    shape = (len(found), max(len(batch.tasks) for _, batch in found))
    tasks, pct = np.full(shape, EMPTY), np.full(shape, 100)
    for row, (_, batch) in enumerate(found):
        tasks[row, : len(batch.tasks)] = [place[task] for task in batch.tasks]
        pct[row, : len(batch.tasks)] = batch.mps_pct
    clocks = np.array([batch.sm_mhz or DEFAULT_CLOCK for _, batch in found])
    done = model.execute(Batches(kind_of[[gpu for gpu, _ in found]], tasks, pct, clocks), piecewise=piecewise)
    now_s = [0.0] * len(plan.cluster)
    powers = []
    for (gpu, _), length_s, energy_j in zip(found, done.end_s.tolist(), done.energy_j.tolist(), strict=True):
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
