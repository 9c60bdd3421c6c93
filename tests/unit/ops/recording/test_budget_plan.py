"""The plan of a time budget: its order, its forecast, its limit, and its continuation."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.devices.device_model import co_run
from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.open_device import emulated
from heshare.ops.recording import budget_plan
from heshare.ops.recording.profile_device import profile, record_within_budget
from heshare.prediction.load import LEAST_SAMPLES
from heshare.profiles import store
from heshare.profiles.visit import MeasurementProtocol, Setup
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.journal import Journal
from heshare.world.catalogue import gpu, memory_mib, paper_models
from heshare.world.workload import PRECISIONS, Resident, Workload

A100 = gpu("A100")
NINE_MINUTES_S = 540.0


def _steps(count: int, name: str = "A100", *, seed: int = 5, **options: bool) -> list[budget_plan.Step]:
    return list(islice(budget_plan.plan(gpu(name), rng=np.random.default_rng(seed), **options), count))


def _affordable(budget_s: float, name: str = "A100", **options: bool) -> list[Setup]:
    """Return the setups of a real GPU's budget, by the forecast."""
    steps = _steps(600, name, **options)
    planned = budget_plan.forecast(steps, budget_plan.PROTOCOL, budget_s, start_s=budget_plan.START_S)
    assert len(planned) < len(steps)
    return [setup for setup, _ in steps[: len(planned)]]


def _alone(name: str, size: int = 8, mps_pct: int = 100, precision: str = "fp32") -> tuple[Resident, ...]:
    return (Resident(Workload(name, size, precision), mps_pct),)


def _different(setup: Setup) -> int:
    return len({resident.workload for resident in setup.residents})


def test_budget_plan_begins_with_every_workload_alone_in_its_default_precision() -> None:
    first = [setup for setup, _ in _steps(15)]
    assert {setup.residents for setup in first} == {_alone(name) for name in paper_models()}
    assert {setup.sm_mhz for setup in first} == {1410}


def test_budget_plan_measures_workloads_alone_before_they_share_a_gpu() -> None:
    alone: set[Workload] = set()
    for setup, _ in _steps(900):
        workloads = {task.workload for task in setup.residents}
        assert len(setup.residents) < 2 or workloads <= alone
        alone |= workloads


@pytest.mark.parametrize("name", ["T4", "A100", "H200"])
def test_budget_plan_has_every_pair_before_the_first_chain(name: str) -> None:
    setups = [setup for setup, _ in _steps(900, name)]
    sizes = [_different(setup) for setup in setups]
    chain = next(place for place, size in enumerate(sizes) if size > 2)
    early = Counter(setup.residents for setup in setups[:chain])
    pairs = {
        Setup(_alone(one) + _alone(other), 0).residents for one, other in combinations(budget_plan.PAIRED_NETWORKS, 2)
    }
    assert len(pairs) == 21
    assert pairs <= set(early)
    halved = [residents for residents in early if [each.mps_pct for each in residents] == [50, 50]]
    assert len(halved) == 10
    assert max(sizes[:chain]) == 2
    # The first settings come again before any chain, too.
    assert all(early[_alone(model)] >= 2 for model in paper_models())


@pytest.mark.parametrize("name", ["A100", "H200"])
def test_budget_plan_of_nine_minutes_asks_each_question(name: str) -> None:
    setups = _affordable(NINE_MINUTES_S, name)
    found = {setup.residents for setup in setups}
    assert sum(not residents for residents in (setup.residents for setup in setups)) == 3
    for model in budget_plan.NETWORKS:
        assert {_alone(model, precision=precision) for precision in PRECISIONS} <= found
        assert {_alone(model, size) for size in (1, 4, 8, 32, 128)} <= found
        assert {_alone(model, mps_pct=pct) for pct in (10, 25, 50, 100)} <= found
        assert {_alone(model) * copies for copies in (1, 2, 4, 8)} <= found
    assert sum(len(residents) == 2 and len(set(residents)) == 2 for residents in found) >= 21 + 2 + 8


def test_budget_plan_has_tf32_only_where_the_gpu_has_it() -> None:
    for name, precisions in (("T4", {"fp32", "fp16"}), ("V100", {"fp32", "fp16"}), ("A100", set(PRECISIONS))):
        found = {task.workload.precision for setup, _ in _steps(300, name) for task in setup.residents}
        assert found == precisions


def test_budget_plan_of_three_minutes_is_enough_for_a_predictor() -> None:
    setups = _affordable(180.0)
    points = {point for setup in setups for point in setup.points()}
    alone = {point.target.workload for point in points if not point.co_runners and point.target.mps_pct == 100}
    samples = {point for point in points if point.co_runners or point.target.mps_pct < 100}
    covered = [point for point in samples if {task.workload for task in (point.target, *point.co_runners)} <= alone]
    assert len(covered) >= LEAST_SAMPLES


@pytest.mark.parametrize("name", ["T4", "A100"])
def test_budget_plan_has_setups_that_fit_and_numbered_visits(name: str) -> None:
    seen: set[tuple[str, int]] = set()
    for setup, number in _steps(900, name, clocks=True):
        assert sum(memory_mib(task.workload) for task in setup.residents) <= gpu(name).memory_mib
        assert len(setup.residents) <= gpu(name).mps_clients
        assert setup.sm_mhz in gpu(name).clocks_mhz
        assert number == 1 or (str(setup), number - 1) in seen
        assert (str(setup), number) not in seen
        seen.add((str(setup), number))


def test_budget_plan_is_that_of_its_seed() -> None:
    assert _steps(600) == _steps(600)
    assert _steps(600) != _steps(600, seed=6)


@pytest.mark.parametrize("clocks", [False, True])
def test_budget_plan_of_nine_minutes_has_the_settings_of_figs_3_and_4(clocks: bool) -> None:
    early = _affordable(NINE_MINUTES_S, clocks=clocks)
    assert set(budget_plan.figure_setups(A100, clocks=clocks)) <= set(early)
    pairs = {tuple(sorted(task.workload.model for task in setup.residents)) for setup in early}
    assert {tuple(sorted(pair)) for pair in budget_plan.PAIRS} <= pairs
    sweep = [setup for setup in early if str(setup).startswith(("resnet152:16@100/", "resnet152:32@100/"))]
    assert len(sweep) == (12 if clocks else 2)


def test_budget_plan_with_clocks_goes_below_the_top_one_after_the_first_settings() -> None:
    assert {setup.sm_mhz for setup, _ in _steps(600)} == {1410}
    below = [setup for setup, _ in _steps(600, clocks=True) if setup.sm_mhz < 1410]
    assert {len(setup.residents) for setup in below} == set(range(1, 8))


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
    assert 880 < device.spent_s <= 900 + 1e-6
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
    with pytest.raises(InputError, match=r"found 12 s; expected time for idle power and one visit: 12\.5 s"):
        record_within_budget(emulated("A100"), 12.0)


class Failing(EmulatedDevice):
    """A device that breaks when it starts its n-th task."""

    def __init__(self, after: int) -> None:
        super().__init__(A100, noise=emulated("A100")._noise)
        self.remaining = after

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise DeviceError("broken")
        super().start(task_id, workload, mps_pct, iterations)


@pytest.mark.parametrize("after", [1, 16, 40, 90])
def test_budget_plan_that_was_interrupted_continues(tmp_path: Path, after: int) -> None:
    journal = tmp_path / "journal"
    with pytest.raises(DeviceError, match="broken"):
        record_within_budget(Failing(after), 400.0, journal=journal)
    kept = journal.read_bytes()
    table = record_within_budget(emulated("A100"), 400.0, journal=journal)
    assert journal.read_bytes().startswith(kept)
    assert store.as_csv(table) == store.as_csv(record_within_budget(emulated("A100"), 400.0))


@pytest.mark.parametrize(
    ("changed", "found"), [({"design": "0"}, "design=0"), ({"arithmetic": None}, "arithmetic=None")]
)
def test_journal_of_another_plan_or_arithmetic_is_refused(
    tmp_path: Path, changed: dict[str, object], found: str
) -> None:
    """What an earlier version recorded as fp32 on a real GPU was TF32: it is not continued in FP32."""
    record_within_budget(emulated("A100"), 60.0, journal=tmp_path / "own")
    own = Journal(tmp_path / "own", "recording")
    other = Journal(tmp_path / "other", "recording")
    other.append({"recording": {**own.entries[0]["recording"], **changed}})
    own.close()
    other.close()
    with pytest.raises(InputError, match=f"found a recording with {found}"):
        record_within_budget(emulated("A100"), 60.0, journal=tmp_path / "other")


def test_budget_plan_measures_equal_copies_and_a_gpu_that_waits(tmp_path: Path) -> None:
    device = EmulatedDevice(A100)
    path = profile(device, tmp_path, budget_s=400.0)
    table = store.read(path)
    for copies in (2, 4, 8):
        residents = _alone("resnet50") * copies
        others = "+".join(["resnet50:8@100"] * (copies - 1))
        row = table[(table["workload"] == "resnet50") & (table["co_runners"] == others)]
        truth = co_run(A100, residents, 1410)
        assert row["time_s"].tolist() == pytest.approx([truth.tasks[0].time_s])
        assert row["power_w"].tolist() == pytest.approx([truth.power_w])
        assert row["energy_j"].tolist() == pytest.approx([truth.power_w * truth.tasks[0].time_s])
    visits = json.loads(path.with_name("manifest.json").read_text(encoding="utf-8"))["visits"]
    assert visits["idle_with_contexts_w"] == pytest.approx(table["idle_w"].iloc[0], rel=1e-6)
    assert Setup((), 1410).points() == []


def test_forecast_starts_a_chain_once() -> None:
    """Seven tasks: one start, seven visits, 28 points."""
    protocol, steps = MeasurementProtocol(), _steps(900, "H100")
    planned = budget_plan.forecast(steps, protocol, None, start_s=budget_plan.START_S)
    assert len(planned) == len(steps)
    begin = next(place for place, (setup, _) in enumerate(steps) if _different(setup) == 7)
    chain = planned[begin : begin + 7]
    assert [item.points for item in chain][:6] == [7, 6, 5, 4, 3, 2]
    assert [item.start_s for item in chain] == [budget_plan.START_S] + [0.0] * 6
    assert sum(item.took_s for item in chain) == pytest.approx(budget_plan.START_S + 7 * protocol.visit_s)


def test_forecast_starts_equal_copies_once_and_counts_each_precision() -> None:
    setups = [Setup(_alone("vgg19") * copies, 1410) for copies in budget_plan.COPIES]
    setups += [Setup(_alone("vgg19", precision=precision), 1410) for precision in PRECISIONS]
    planned = budget_plan.forecast([(setup, 1) for setup in setups], budget_plan.PROTOCOL, None, start_s=2.0)
    assert [item.start_s for item in planned] == [2.0, 0.0, 0.0, 0.0, 2.0, 2.0]
    assert [item.points for item in planned] == [1] * 6


def test_profile_dry_run_prints_what_is_then_recorded(tmp_path: Path) -> None:
    command = ["profile", "--device", "emulated:A100", "--budget", "5m", "--dry-run", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0].split() == ["minute", "points", "what"]
    assert "A100 (emulated): " in shown.stdout.splitlines()[-1]
    assert not list(tmp_path.iterdir())
    printed = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert printed["points"] == len(record_within_budget(emulated("A100"), 300.0, clocks=True))
    assert printed["minutes"] <= 5.0


class Card(EmulatedDevice):
    """A device that says it is real."""

    provenance, uuid = "measured", "GPU-0"


@pytest.mark.parametrize(("more", "failure"), [((), ""), ((), "no profiler"), (("--kernels", "none"), "")])
def test_profile_of_a_real_gpu_traces_its_kernels_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], failure: str
) -> None:
    traced: list[tuple[int, Path]] = []

    def record(workloads: list[Workload], gpu: str, path: Path, *, gpu_uuid: str) -> None:
        assert path.with_name("profile.csv").is_file()
        traced.append((len(workloads), path))
        if failure:
            raise DeviceError(failure)

    monkeypatch.setattr("heshare.cli.profile_commands.opened", lambda *_, **__: nullcontext(Card(A100)))
    monkeypatch.setattr("heshare.ops.recording.kernel_recorder.record", record)
    words = ["profile", "--device", "nvml:0", "--budget", "1m", "--out", str(tmp_path), "-q", *more]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert traced == ([] if more else [(len(paper_models()), tmp_path / "A100" / "kernels.csv")])
    assert done.stderr == (f"heshare: no kernel traces: {failure}\n" if failure else "")
