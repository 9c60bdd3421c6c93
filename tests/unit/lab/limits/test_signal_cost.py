"""Cost of energy under a signal, over a timeline."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import heshare as hs
from heshare.lab.limits.prices.energy_signal import EnergySignal
from heshare.lab.limits.prices.signal_cost import EnergyCost, run_cost

STEPS = EnergySignal((0.0, 600.0, 1_500.0), (0.1, 0.4, 0.2))


def test_the_cost_of_a_run_is_its_power_times_the_price_at_every_moment() -> None:
    run = hs.run(4, "1xT4,1xA100", "sjf")
    cost = run_cost(run, STEPS)
    frame = run.timeline
    ends_s = run.intervals.groupby("gpu")["end_s"].max()
    moments_s = np.unique([0.0, *frame["end_s"], *ends_s, *STEPS.time_s])
    moments_s = moments_s[moments_s <= run.makespan_s]
    active = cluster = 0.0
    for begin_s, end_s in itertools.pairwise(moments_s):
        middle_s = (begin_s + end_s) / 2
        now = frame[(frame["start_s"] <= middle_s) & (frame["end_s"] > middle_s)]
        kwh = now.set_index("gpu")["power_w"] * (end_s - begin_s) / 3.6e6
        cluster += STEPS.at(middle_s) * kwh.sum()
        active += STEPS.at(middle_s) * kwh[[gpu for gpu in kwh.index if ends_s.get(gpu, 0.0) > middle_s]].sum()
    assert cost.active == pytest.approx(active, rel=1e-9)
    assert cost.cluster == pytest.approx(cluster, rel=1e-9)
    assert cost.per_kwh == pytest.approx(active / (run.energy_active_j / 3.6e6), rel=1e-9)


def test_columns_name_what_is_counted() -> None:
    assert list(EnergyCost("cost", 1, 2, 3).columns()) == ["cost_active", "cost_cluster", "cost_per_kwh"]
    assert list(EnergyCost("co2_g", 1, 2, 3).columns()) == ["co2_active_g", "co2_cluster_g", "co2_g_per_kwh"]
