"""Shapley values of tenants: by hand, symmetry, the sum; ways of dividing held against them."""

from __future__ import annotations

import pytest

import heshare as hs
from heshare.devices.device_model import co_run
from heshare.lab.tenants.run_errors import SHAPLEY_WAY, ShapleyPower, divided_ways, errors_of_runs
from heshare.lab.tenants.tenant_power import EQUAL, MODEL
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

A100 = gpu("A100")
LIGHT, HEAVY = Resident(Workload("mobilenet", 1), 50), Resident(Workload("vgg19", 8), 50)


def power_w(*residents):
    return co_run(A100, residents, 1005).power_w


def test_shapley_values_are_the_mean_additions_over_both_orders():
    light_w, heavy_w = ShapleyPower().shapley_w(A100, (LIGHT, HEAVY), 1005)
    both_w, idle_w = power_w(LIGHT, HEAVY), power_w()
    assert light_w == pytest.approx((power_w(LIGHT) - idle_w + both_w - power_w(HEAVY)) / 2)
    assert light_w + heavy_w == pytest.approx(both_w - idle_w)


def test_shapley_values_of_copies_are_equal_and_sum_to_the_power_above_idle():
    values_w = ShapleyPower().shapley_w(A100, (HEAVY, HEAVY, HEAVY), 1005)
    assert values_w == pytest.approx([values_w[0]] * 3)
    assert sum(values_w) == pytest.approx(power_w(HEAVY, HEAVY, HEAVY) - power_w())


def test_too_many_tenants_for_shapley_values_are_refused():
    with pytest.raises(InputError, match="found 13 tenants at once; expected at most 12"):
        ShapleyPower().shares_j(A100, [LIGHT] * 13, 1005.0, 1.0, 1.0)


def test_ways_of_dividing_sum_to_the_same_and_power_alone_is_nearer_to_the_shapley_values():
    runs = [hs.run(6, "1xA100", "random:all-at-once", seed=seed) for seed in range(2)]
    ways = divided_ways(runs[0])
    assert ways["way"].unique().tolist() == [EQUAL, MODEL, SHAPLEY_WAY]
    assert ways["tenant"].nunique() == 6
    sums = ways.groupby("way")["energy_j"].sum()
    assert sums.to_numpy() == pytest.approx(sums.mean(), rel=1e-9)
    errors = errors_of_runs(runs).set_index("way")
    assert errors["tenants"].tolist() == [12, 12]
    assert errors.loc[MODEL, "mape_pct"] < errors.loc[EQUAL, "mape_pct"] / 2
