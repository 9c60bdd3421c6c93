"""The plan of a time budget: its order, its limit, and its resumption after a kill at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.open_device import emulated
from heshare.ops.recording import budget_plan
from heshare.ops.recording.profile_device import profile, record_within_budget
from heshare.profiles import store
from heshare.profiles.visit import Setup
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu, memory_mib, paper_models
from heshare.world.workload import Workload

A100 = gpu("A100")


def _steps(count: int, name: str = "A100", **options: bool) -> list[budget_plan.Step]:
    return list(islice(budget_plan.plan(gpu(name), rng=np.random.default_rng(5), **options), count))


def test_budget_plan_begins_with_every_workload_alone() -> None:
    first = [setup for setup, _ in _steps(15)]
    assert {setup.residents[0].workload.model for setup in first} == set(paper_models())
    assert {(len(setup.residents), setup.residents[0].mps_pct, setup.sm_mhz) for setup in first} == {(1, 100, 1410)}


def test_budget_plan_measures_workloads_alone_before_they_share_a_gpu() -> None:
    alone: set[Workload] = set()
    for setup, _ in _steps(400):
        workloads = {task.workload for task in setup.residents}
        assert len(workloads) == 1 or workloads <= alone
        alone |= workloads


def test_budget_plan_chains_setups_that_need_no_new_start() -> None:
    chain = [setup.residents for setup, _ in _steps(22)[15:]]
    assert [len(residents) for residents in chain] == [7, 6, 5, 4, 3, 2, 1]
    for larger, smaller in pairwise(chain):
        assert set(smaller) < set(larger)


@pytest.mark.parametrize("name", ["T4", "A100"])
def test_budget_plan_has_setups_that_fit_and_numbered_visits(name: str) -> None:
    seen: set[tuple[str, int]] = set()
    for setup, number in _steps(900, name, clocks=True):
        assert sum(memory_mib(task.workload) for task in setup.residents) <= gpu(name).memory_mib
        assert setup.sm_mhz in gpu(name).clocks_mhz
        assert number == 1 or (str(setup), number - 1) in seen
        assert (str(setup), number) not in seen
        seen.add((str(setup), number))


def test_budget_plan_varies_clocks_only_on_request() -> None:
    assert {setup.sm_mhz for setup, _ in _steps(600)} == {1410}
    assert len({setup.sm_mhz for setup, _ in _steps(900, clocks=True)}) > 2


@pytest.mark.parametrize("clocks", [False, True])
def test_budget_plan_has_the_settings_of_the_papers_figures_first(clocks: bool) -> None:
    early = [setup for setup, _ in _steps(100, clocks=clocks)]
    pairs = {tuple(sorted(task.workload.model for task in setup.residents)) for setup in early if _is_figure_4(setup)}
    assert pairs == {tuple(sorted(pair)) for pair in budget_plan.PAIRS}
    sweep = [setup for setup in early if str(setup).startswith(("resnet152:16@100/", "resnet152:32@100/"))]
    assert len(sweep) == (12 if clocks else 2)
    assert {1410} <= {setup.sm_mhz for setup in sweep}


def _is_figure_4(setup: Setup) -> bool:
    return len(setup.residents) == 2 and all(str(task).endswith(":8@100") for task in setup.residents)


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


def test_bit_reversal_returns_each_index_once_in_order() -> None:
    assert budget_plan.bit_reversal_order(8) == [4, 2, 6, 1, 5, 3, 7, 0]
    for levels in range(1, 40):
        assert sorted(budget_plan.bit_reversal_order(levels)) == list(range(levels))


def test_budget_plan_of_fifteen_minutes_has_three_hundred_points(tmp_path: Path) -> None:
    device = Counting()
    path = profile(device, tmp_path, budget_s=900.0)
    table = store.read(path)
    assert len(table) >= 300
    assert 880 < device.spent_s <= 900
    assert set(table["workload"]) == set(paper_models())
    assert table["co_runners"].str.count(r"\+").max() >= 4


class Counting(EmulatedDevice):
    """A device that adds up the time over its restarts."""

    spent_s = 0.0

    def __init__(self) -> None:
        super().__init__(A100)

    def advance(self, to_s: float) -> list[int]:
        self.spent_s += to_s - self.read().time_s
        return super().advance(to_s)


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


def _start(out: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "heshare", "profile", "--device", "emulated:A100", "--budget", "15m"]
    return subprocess.Popen([*command, "--out", str(out), *options], stdout=subprocess.DEVNULL)


def _killed_after(out: Path, lines: int) -> bool:
    """Start a recording and kill it when its journal has so many lines; return False if it ended before."""
    journal = out / "A100" / "recording.jsonl"
    process = _start(out)
    try:
        while process.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
                break
            time.sleep(0.0005)
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_record_within_budget_resumed_after_a_kill_writes_the_same_bytes(tmp_path: Path) -> None:
    complete, broken = tmp_path / "complete", tmp_path / "broken"
    reference = _start(complete)
    moments = np.random.default_rng(9).integers((1, 20, 60), (20, 60, 100))
    killed = [_killed_after(broken, int(lines)) for lines in moments]
    assert killed == [True, True, True]
    assert not (broken / "A100" / "profile.csv").exists()
    assert _start(broken).wait() == reference.wait() == 0
    for name in ("profile.csv", "manifest.json", "recording.jsonl"):
        assert (broken / "A100" / name).read_bytes() == (complete / "A100" / name).read_bytes()
