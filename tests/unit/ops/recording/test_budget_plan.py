"""The plan of a time budget: its order, its forecast, its limit, and its continuation."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.open_device import emulated
from heshare.ops.recording import budget_plan
from heshare.ops.recording.profile_device import profile, record_within_budget
from heshare.profiles import store
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared.errors import DeviceError, InputError
from heshare.world.catalogue import gpu, memory_mib, paper_models
from heshare.world.workload import Workload

A100 = gpu("A100")


def _steps(count: int, name: str = "A100", **options: bool) -> list[budget_plan.Step]:
    return list(islice(budget_plan.plan(gpu(name), rng=np.random.default_rng(5), **options), count))


def test_budget_plan_begins_with_every_workload_alone_and_chains_setups_that_need_no_new_start() -> None:
    setups = [setup for setup, _ in _steps(22)]
    first, chain = setups[:15], [setup.residents for setup in setups[15:]]
    assert {setup.residents[0].workload.model for setup in first} == set(paper_models())
    assert {(len(setup.residents), setup.residents[0].mps_pct, setup.sm_mhz) for setup in first} == {(1, 100, 1410)}
    assert [len(residents) for residents in chain] == [7, 6, 5, 4, 3, 2, 1]
    for larger, smaller in pairwise(chain):
        assert set(smaller) < set(larger)


def test_budget_plan_measures_workloads_alone_before_they_share_a_gpu() -> None:
    alone: set[Workload] = set()
    for setup, _ in _steps(400):
        workloads = {task.workload for task in setup.residents}
        assert len(workloads) == 1 or workloads <= alone
        alone |= workloads


@pytest.mark.parametrize("name", ["T4", "A100"])
def test_budget_plan_has_setups_that_fit_and_numbered_visits(name: str) -> None:
    seen: set[tuple[str, int]] = set()
    for setup, number in _steps(900, name, clocks=True):
        assert sum(memory_mib(task.workload) for task in setup.residents) <= gpu(name).memory_mib
        assert setup.sm_mhz in gpu(name).clocks_mhz
        assert number == 1 or (str(setup), number - 1) in seen
        assert (str(setup), number) not in seen
        seen.add((str(setup), number))


@pytest.mark.parametrize("clocks", [False, True])
def test_budget_plan_has_the_settings_of_the_papers_figures_first(clocks: bool) -> None:
    early = [setup for setup, _ in _steps(100, clocks=clocks)]
    of_8 = [one for one in early if all(str(task).endswith(":8@100") for task in one.residents)]
    pairs = {tuple(sorted(task.workload.model for task in setup.residents)) for setup in of_8}
    assert {tuple(sorted(pair)) for pair in budget_plan.PAIRS} <= pairs
    sweep = [setup for setup in early if str(setup).startswith(("resnet152:16@100/", "resnet152:32@100/"))]
    assert len(sweep) == (12 if clocks else 2)
    assert len({setup.sm_mhz for setup in early} - {1410}) == (len({setup.sm_mhz for setup in sweep}) - 1)


def test_budget_plan_of_a_time_sliced_device_has_only_shares_of_100_pct(tmp_path: Path) -> None:
    path = profile(TimeSliced(A100), tmp_path, budget_s=300.0)
    table = store.read(path)
    assert set(table["mps_pct"]) == {100}
    assert not table["co_runners"].str.contains("@[1-9]0(?!0)", regex=True).any()
    assert json.loads(path.with_name("manifest.json").read_text(encoding="utf-8"))["device"]["sharing"] == "time-slice"


class TimeSliced(EmulatedDevice):
    """A device without MPS."""

    sharing = "time-slice"

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        assert mps_pct == 100
        super().start(task_id, workload, mps_pct, iterations)

    def facts(self) -> dict[str, str | int | float | bool | None]:
        return {"sharing": self.sharing}


class Counting(EmulatedDevice):
    """A device that adds up the time over its restarts."""

    spent_s = 0.0

    def advance(self, to_s: float) -> list[int]:
        self.spent_s += to_s - self.read().time_s
        return super().advance(to_s)


def test_budget_plan_of_fifteen_minutes_has_three_hundred_points(tmp_path: Path) -> None:
    device = Counting(A100)
    table = store.read(profile(device, tmp_path, budget_s=900.0))
    assert len(table) >= 300
    assert 880 < device.spent_s <= 900
    assert set(table["workload"]) == set(paper_models())
    assert table["co_runners"].str.count(r"\+").max() >= 4


def test_budget_plan_of_a_larger_budget_continues_that_of_a_smaller_one(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    small = record_within_budget(emulated("A100"), 120.0, journal=journal)
    kept = journal.read_bytes()
    large = record_within_budget(emulated("A100"), 200.0, journal=journal)
    assert journal.read_bytes().startswith(kept)
    assert len(large) > len(small)
    assert store.as_csv(large) == store.as_csv(record_within_budget(emulated("A100"), 200.0))
    assert store.as_csv(record_within_budget(emulated("A100"), 120.0, journal=journal)) == store.as_csv(small)


def test_record_within_budget_refuses_a_budget_without_time_for_a_visit() -> None:
    with pytest.raises(InputError, match="found 20 s; expected time for idle power and one visit: 31 s"):
        record_within_budget(emulated("A100"), 20.0)


def test_forecast_starts_a_chain_once() -> None:
    """Seven tasks: one start, seven visits, 28 points; so 15 minutes are enough for the figures."""
    protocol, steps = MeasurementProtocol(), iter(_steps(400, "H100"))
    planned = budget_plan.forecast(steps, protocol, 900.0, start_s=budget_plan.START_S)
    chain = planned[15:22]
    assert [item.points for item in chain] == [7, 6, 5, 4, 3, 2, 0]  # the last workload was measured alone before
    assert sum(item.took_s for item in chain) == budget_plan.START_S + 7 * protocol.visit_s
    assert planned[-1].begin_s + planned[-1].took_s <= 900.0
    assert sum(item.points for item in planned) >= 300


def test_profile_dry_run_prints_what_is_then_recorded(tmp_path: Path) -> None:
    command = ["profile", "--device", "emulated:A100", "--budget", "5m", "--dry-run", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0].split() == ["minute", "points", "what"]
    assert "A100 (emulated): " in shown.stdout.splitlines()[-1]
    assert not list(tmp_path.iterdir())
    printed = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert printed["points"] == len(record_within_budget(emulated("A100"), 300.0))
    assert printed["minutes"] <= 5.0


class Card(EmulatedDevice):
    """A device that says it is real."""

    provenance, uuid = "measured", "GPU-0"


@pytest.mark.parametrize(("more", "failure"), [((), ""), ((), "no profiler"), (("--no-kernels",), "")])
def test_profile_of_a_real_gpu_traces_its_kernels_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], failure: str
) -> None:
    traced: list[tuple[int, Path]] = []

    def record(workloads: list[Workload], gpu: str, path: Path, *, gpu_uuid: str) -> None:
        assert path.with_name("profile.csv").is_file()
        traced.append((len(workloads), path))
        if failure:
            raise DeviceError(failure)

    monkeypatch.setattr("heshare.ops.open_device.opened", lambda *_, **__: nullcontext(Card(A100)))
    monkeypatch.setattr("heshare.ops.recording.kernel_recorder.record", record)
    words = ["profile", "--device", "nvml:0", "--budget", "1m", "--out", str(tmp_path), "-q", *more]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert traced == ([] if more else [(len(paper_models()), tmp_path / "A100" / "kernels.csv")])
    assert done.stderr == (f"heshare: no kernel traces: {failure}\n" if failure else "")
