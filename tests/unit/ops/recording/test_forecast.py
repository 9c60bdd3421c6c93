"""The forecast of a recording, and recordings on a device on which starting takes time."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from support.slow_device import SlowDevice
from typer.testing import CliRunner

from heshare.cli import app
from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.systems.fikit import kernel_table
from heshare.lab.systems.fikit.kernel_table import KernelRow
from heshare.ops.open_device import emulated
from heshare.ops.recording import kernel_events
from heshare.ops.recording.forecast import NO_COSTS, PlannedItem, RecordingCosts, forecast
from heshare.ops.recording.profile_device import profile, recording_items
from heshare.ops.recording.tracing_session import MAX_FAILED_TRACES
from heshare.profiles import manifest, store
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared import files
from heshare.shared.errors import DeviceError
from heshare.world.catalogue import gpu, paper_models
from heshare.world.workload import Workload

H100 = gpu("H100")
BUDGET_S = 900.0
ONE_BY_ONE = RecordingCosts(together=False, keep=0)


def _plan(costs: RecordingCosts) -> list[PlannedItem]:
    device = EmulatedDevice(H100)
    items = recording_items(device, 0, BUDGET_S, clocks=False, seed=0, repeats=5, kernels=True)
    return forecast(items, MeasurementProtocol(), BUDGET_S, costs=costs)


def test_forecast_starts_a_chain_once_so_a_point_takes_less_than_three_seconds() -> None:
    """Seven tasks: one start of 5 s, six stops of 0.5 s, seven visits of 6 s, 28 points."""
    protocol, costs = MeasurementProtocol(), RecordingCosts()
    chain = _plan(costs)[30:37]
    assert [item.points for item in chain] == [7, 6, 5, 4, 3, 2, 1]
    took_s = sum(item.took_s for item in chain)
    assert took_s == pytest.approx(costs.standby_s + 7 * costs.stop_s + 7 * protocol.visit_s, abs=costs.stop_s)
    assert took_s / 28 < 2.0
    planned = _plan(costs)
    points = sum(item.points for item in planned)
    parts_s = (
        protocol.repeats * protocol.window_s
        + sum(item.start_s for item in planned)
        + costs.trace_s * sum(item.points == 0 and item.what.startswith("kernels") for item in planned)
        + protocol.visit_s * sum(not item.what.startswith("kernels") for item in planned)
    )
    assert parts_s == pytest.approx(planned[-1].begin_s + planned[-1].took_s)
    assert points >= 300
    assert BUDGET_S / points <= 3.0


def test_forecast_has_fewer_points_if_tasks_start_one_after_the_other() -> None:
    assert sum(item.points for item in _plan(ONE_BY_ONE)) < 300 <= sum(item.points for item in _plan(RecordingCosts()))


def test_forecast_of_fifteen_minutes_has_three_hundred_points(tmp_path: Path) -> None:
    device = SlowDevice(H100, RecordingCosts())
    path = profile(device, tmp_path, budget_s=BUDGET_S, clocks=False, trace=device.trace, progress=False)
    table = store.read(path)
    assert len(table) >= 300
    assert 0.95 * BUDGET_S < device.spent_s <= BUDGET_S
    assert len(table) == pytest.approx(sum(item.points for item in _plan(RecordingCosts())), abs=10)
    assert max(tasks for tasks, _ in device.started) == 7
    assert {row.workload for row in kernel_table.read(path.with_name("kernels.csv"))} == set(paper_models())


def test_recording_traces_kernels_after_workloads_alone_and_before_shared_ones() -> None:
    device = EmulatedDevice(H100)
    items = list(islice(recording_items(device, 0, BUDGET_S, clocks=False, seed=0, repeats=5, kernels=True), 31))
    assert all(not isinstance(item, Workload) and len(item[0].residents) == 1 for item in items[:15])
    assert {item.model for item in items[15:30] if isinstance(item, Workload)} == set(paper_models())
    assert not isinstance(items[30], Workload)
    without_budget = list(recording_items(device, 5, None, clocks=True, seed=0, repeats=1, kernels=True))
    assert [isinstance(item, Workload) for item in without_budget[-16:]] == [False] + 15 * [True]


def test_manifest_has_the_checksum_of_the_kernel_table(tmp_path: Path) -> None:
    device = SlowDevice(H100, RecordingCosts())
    path = profile(device, tmp_path, budget_s=400.0, clocks=False, trace=device.trace, progress=False)
    entry = json.loads(path.with_name("manifest.json").read_text("utf-8"))["kernels"]
    traced = path.with_name("kernels.csv")
    assert entry == {
        "table": "kernels.csv",
        "sha256": files.sha256(traced),
        "rows": 30,
        "workloads": 15,
        "left_out": {},
    }
    manifest.verify(traced)
    traced.write_text(traced.read_text("utf-8").replace("5.0", "6.0"), encoding="utf-8")
    with pytest.raises(Exception, match="changed after it was recorded"):
        manifest.verify(traced)
    kernel_events.update_manifest(traced)
    manifest.verify(traced)


def test_recording_continues_after_a_failing_kernel_profiler(tmp_path: Path) -> None:
    tried: list[Workload] = []

    def broken(workload: Workload) -> tuple[KernelRow, ...]:
        tried.append(workload)
        raise DeviceError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")

    with pytest.warns(UserWarning, match="no kernels of .*: CUPTI"):
        path = profile(
            SlowDevice(H100, RecordingCosts()), tmp_path, budget_s=300.0, clocks=False, trace=broken, progress=False
        )
    assert len(tried) == MAX_FAILED_TRACES
    left_out = json.loads(path.with_name("manifest.json").read_text("utf-8"))["kernels"]["left_out"]
    assert len(left_out) == 15
    assert sum("CUPTI" in reason for reason in left_out.values()) == MAX_FAILED_TRACES
    assert len(store.read(path)) > 15


def test_recording_does_not_trace_recorded_kernels_again(tmp_path: Path) -> None:
    device = SlowDevice(H100, RecordingCosts())
    recorded = device.trace(Workload("resnet18", 8)) + device.trace(Workload("resnet18", 1))
    kernel_table.write(recorded, tmp_path / "H100" / "kernels.csv")
    tried: list[str] = []

    def trace(workload: Workload) -> tuple[KernelRow, ...]:
        tried.append(workload.model)
        return device.trace(workload)

    path = profile(device, tmp_path, budget_s=400.0, clocks=False, trace=trace, progress=False)
    assert set(tried) == set(paper_models()) - {"resnet18"}
    assert len({row.setting for row in kernel_table.read(path.with_name("kernels.csv"))}) == 16


def test_profile_dry_run_prints_the_plan_and_measures_nothing(tmp_path: Path) -> None:
    command = ["profile", "--device", "emulated:A100", "--budget", "5m", "--dry-run", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0].split() == ["minute", "points", "what"]
    assert "A100 (emulated): " in shown.stdout.splitlines()[-1]
    assert not list(tmp_path.iterdir())
    printed = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    recorded = store.read(profile(emulated("A100"), tmp_path, budget_s=300.0, progress=False))
    assert printed["points"] == len(recorded)
    assert printed["minutes"] <= 5.0


def test_forecast_of_an_emulated_device_has_no_starting_times() -> None:
    assert all(item.start_s == 0 for item in _plan(NO_COSTS))
