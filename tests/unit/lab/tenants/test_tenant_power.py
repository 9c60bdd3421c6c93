"""The power of a workload alone above idle: from the device model, from a measured profile, unknown."""

from __future__ import annotations

import math
import pickle

import pytest

from heshare.devices.device_model import co_run
from heshare.lab.tenants.tenant_power import TenantPower
from heshare.profiles import store
from heshare.world.catalogue import gpu
from heshare.world.workload import Resident, Workload

A100, VGG, MOBILENET = gpu("A100"), Workload("vgg19", 32), Workload("mobilenet", 1)


def test_power_above_idle_is_that_of_the_device_model_at_the_nearest_clock():
    alone, power = Resident(VGG, 50), TenantPower()
    idle_w = co_run(A100, ()).power_w
    for asked, clock in ((math.nan, None), (1e9, None), (1005.0, 1005), (1006.9, 1005), (1.0, A100.clocks_mhz[0])):
        found_w = power.above_idle_w(A100, alone, asked)
        assert found_w == co_run(A100, (alone,), clock).power_w - idle_w
    assert power.idle_w(A100) == idle_w


def test_power_above_idle_is_the_profile_where_one_was_measured():
    table = store.read_shipped()
    table = table[(table["gpu"] == "A100") & (table["co_runners"] == "")].copy()
    emulated = TenantPower.of_profile(table)
    row = table[(table["workload"] == "vgg19") & (table["mps_pct"] < 100)].iloc[0]
    one = Resident(Workload("vgg19", int(row["batch_size"])), int(row["mps_pct"]))
    model = TenantPower()
    assert emulated.above_idle_w(A100, one, row["sm_mhz"]) == model.above_idle_w(A100, one, row["sm_mhz"])
    table["provenance"] = "measured"
    table["power_w"] += 100.0
    measured = pickle.loads(pickle.dumps(TenantPower.of_profile(table)))
    recorded_w = row["power_w"] + 100.0 - row["idle_w"]
    assert measured.above_idle_w(A100, one, row["sm_mhz"]) == pytest.approx(recorded_w, rel=1e-9)
    assert measured.idle_w(A100) == pytest.approx(table["idle_w"].mean())
    between = Resident(one.workload, one.mps_pct - 1)
    ratio = model.above_idle_w(A100, between) / model.above_idle_w(A100, one)
    assert measured.above_idle_w(A100, between, row["sm_mhz"]) == pytest.approx(recorded_w * ratio, rel=0.05)


def test_a_workload_that_neither_has_gets_the_mean_of_the_others():
    power, unknown = TenantPower(), Resident(Workload("no_such_network", 1))
    assert math.isnan(power.above_idle_w(A100, unknown))
    light, heavy = Resident(MOBILENET, 20), Resident(VGG, 80)
    idle_j = 10.0 * power.idle_w(A100)
    parts_j = power.shares_j(A100, (light, unknown, heavy), math.nan, idle_j + 1200.0, 10.0)
    assert sum(parts_j) == pytest.approx(idle_j + 1200.0, rel=1e-9)
    assert parts_j[1] == pytest.approx(idle_j / 3 + 400.0)
    assert parts_j[0] < parts_j[1] < parts_j[2]
