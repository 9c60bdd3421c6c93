"""What fifteen minutes buy: the arithmetic, and the recorder over a device on which starting takes its time."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.devices.emulated import EmulatedDevice
from heshare.devices.open import emulated
from heshare.errors import DeviceError
from heshare.profiles import kernels, manifest, store
from heshare.profiles.forecast import FREE, Costs, Planned, forecast
from heshare.profiles.kernels import KernelRow
from heshare.profiles.protocol import Protocol
from heshare.profiles.record import items, profile
from heshare.profiles.session import GIVE_UP
from heshare.testing.slow import SlowDevice
from heshare.world.catalogue import gpu, models
from heshare.world.workload import Workload

H100 = gpu("H100")
BUDGET_S = 900.0
ONE_BY_ONE = Costs(together=False, keep=0)


def _plan(costs: Costs) -> list[Planned]:
    device = EmulatedDevice(H100)
    plan = items(device, 0, BUDGET_S, clocks=False, seed=0, repeats=5, kernels=True)
    return forecast(plan, Protocol(), BUDGET_S, costs=costs)


def test_a_point_takes_three_seconds_because_a_chain_is_started_once() -> None:
    """Seven tasks: one start of 5 s, six stops of 0.5 s, seven visits of 6 s, 28 points."""
    protocol, costs = Protocol(), Costs()
    chain = _plan(costs)[30:37]
    assert [one.points for one in chain] == [7, 6, 5, 4, 3, 2, 1]
    took_s = sum(one.took_s for one in chain)
    assert took_s == pytest.approx(costs.standby_s + 7 * costs.stop_s + 7 * protocol.visit_s, abs=costs.stop_s)
    assert took_s / 28 < 2.0
    planned = _plan(costs)
    points = sum(one.points for one in planned)
    parts_s = (
        protocol.repeats * protocol.window_s
        + sum(one.start_s for one in planned)
        + costs.trace_s * sum(one.points == 0 and one.what.startswith("kernels") for one in planned)
        + protocol.visit_s * sum(not one.what.startswith("kernels") for one in planned)
    )
    assert parts_s == pytest.approx(planned[-1].begin_s + planned[-1].took_s)
    assert points >= 300
    assert BUDGET_S / points <= 3.0


def test_starting_one_after_the_other_would_not_do() -> None:
    assert sum(one.points for one in _plan(ONE_BY_ONE)) < 300 <= sum(one.points for one in _plan(Costs()))


def test_fifteen_minutes_with_starts_and_kernels_give_three_hundred_points(tmp_path: Path) -> None:
    device = SlowDevice(H100, Costs())
    path = profile(device, tmp_path, budget_s=BUDGET_S, clocks=False, trace=device.trace, progress=False)
    table = store.read(path)
    assert len(table) >= 300
    assert 0.95 * BUDGET_S < device.spent_s <= BUDGET_S
    assert len(table) == pytest.approx(sum(one.points for one in _plan(Costs())), abs=10)
    assert max(tasks for tasks, _ in device.started) == 7
    assert {row.workload for row in kernels.read(path.with_name("kernels.csv"))} == set(models())


def test_kernels_come_after_the_workloads_alone_and_before_any_that_share() -> None:
    device = EmulatedDevice(H100)
    plan = list(islice(items(device, 0, BUDGET_S, clocks=False, seed=0, repeats=5, kernels=True), 31))
    assert all(not isinstance(one, Workload) and len(one[0].residents) == 1 for one in plan[:15])
    assert {one.model for one in plan[15:30] if isinstance(one, Workload)} == set(models())
    assert not isinstance(plan[30], Workload)
    whole = list(items(device, 5, None, clocks=True, seed=0, repeats=1, kernels=True))
    assert [isinstance(one, Workload) for one in whole[-16:]] == [False] + 15 * [True]


def test_the_manifest_knows_the_kernels_and_notices_a_change(tmp_path: Path) -> None:
    device = SlowDevice(H100, Costs())
    path = profile(device, tmp_path, budget_s=400.0, clocks=False, trace=device.trace, progress=False)
    said = json.loads(path.with_name("manifest.json").read_text("utf-8"))["kernels"]
    traced = path.with_name("kernels.csv")
    assert said == {
        "table": "kernels.csv",
        "sha256": manifest.checksum(traced),
        "rows": 30,
        "workloads": 15,
        "left_out": {},
    }
    manifest.verify(traced)
    traced.write_text(traced.read_text("utf-8").replace("5.0", "6.0"), encoding="utf-8")
    with pytest.raises(Exception, match="changed after it was recorded"):
        manifest.verify(traced)
    manifest.note_kernels(traced)
    manifest.verify(traced)


def test_a_profiler_that_does_not_work_spoils_no_recording(tmp_path: Path) -> None:
    tried: list[Workload] = []

    def broken(workload: Workload) -> tuple[KernelRow, ...]:
        tried.append(workload)
        raise DeviceError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")

    with pytest.warns(UserWarning, match="no kernels of .*: CUPTI"):
        path = profile(SlowDevice(H100, Costs()), tmp_path, budget_s=300.0, clocks=False, trace=broken, progress=False)
    assert len(tried) == GIVE_UP
    left_out = json.loads(path.with_name("manifest.json").read_text("utf-8"))["kernels"]["left_out"]
    assert len(left_out) == 15
    assert sum("CUPTI" in why for why in left_out.values()) == GIVE_UP
    assert len(store.read(path)) > 15


def test_kernels_that_the_table_has_are_not_traced_again(tmp_path: Path) -> None:
    device = SlowDevice(H100, Costs())
    own = device.trace(Workload("resnet18", 8)) + device.trace(Workload("resnet18", 1))
    kernels.write(own, tmp_path / "H100" / "kernels.csv")
    tried: list[str] = []

    def trace(workload: Workload) -> tuple[KernelRow, ...]:
        tried.append(workload.model)
        return device.trace(workload)

    path = profile(device, tmp_path, budget_s=400.0, clocks=False, trace=trace, progress=False)
    assert set(tried) == set(models()) - {"resnet18"}
    assert len({row.setting for row in kernels.read(path.with_name("kernels.csv"))}) == 16


def test_the_plan_is_printed_and_nothing_is_measured(tmp_path: Path) -> None:
    command = ["profile", "--device", "emulated:A100", "--budget", "5m", "--dry-run", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0].split() == ["minute", "points", "what"]
    assert "A100 (emulated): " in shown.stdout.splitlines()[-1]
    assert not list(tmp_path.iterdir())
    said = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    recorded = store.read(profile(emulated("A100"), tmp_path, budget_s=300.0, progress=False))
    assert said["points"] == len(recorded)
    assert said["minutes"] <= 5.0


def test_an_emulated_device_starts_for_nothing() -> None:
    assert all(one.start_s == 0 for one in _plan(FREE))
