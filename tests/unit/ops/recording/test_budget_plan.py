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
from heshare.profiles import store
from heshare.profiles.visit import Setup
from heshare.shared.errors import DeviceError, InputError
from heshare.shared.journal import Journal
from heshare.world import catalogue
from heshare.world.catalogue import gpu, memory_mib, paper_models
from heshare.world.workload import DEFAULT_PRECISION, PRECISIONS, Resident, Workload

A100 = gpu("A100")


def _steps(count: int, name: str = "A100", *, seed: int = 5, **options: bool) -> list[budget_plan.Step]:
    return list(islice(budget_plan.plan(gpu(name), rng=np.random.default_rng(seed), **options), count))


def _alone(name: str, size: int = 8, mps_pct: int = 100, precision: str = DEFAULT_PRECISION) -> tuple[Resident, ...]:
    return (Resident(Workload(name, size, precision), mps_pct),)


@pytest.mark.parametrize("name", ["T4", "A100", "H200"])
def test_order(name: str) -> None:
    """Every workload comes alone first, in its default precision, then every pair, then chains."""
    setups = [setup for setup, _ in _steps(900, name)]
    assert {setup.residents for setup in setups[:15]} == {_alone(model) for model in paper_models()}
    assert {setup.sm_mhz for setup in setups[:15]} == {gpu(name).max_mhz}
    alone: set[Workload] = set()
    for setup in setups:
        workloads = {task.workload for task in setup.residents}
        assert len(setup.residents) < 2 or workloads <= alone
        alone |= workloads

    sizes = [len({resident.workload for resident in setup.residents}) for setup in setups]
    chain = next(place for place, size in enumerate(sizes) if size > 2)
    early = Counter(setup.residents for setup in setups[:chain])
    pairs = {
        Setup(_alone(one) + _alone(other), 0).residents for one, other in combinations(budget_plan.PAIRED_NETWORKS, 2)
    }
    assert pairs <= set(early)
    # The first settings come again before any chain, too.
    assert all(early[_alone(model)] >= 2 for model in paper_models())


def test_tf32() -> None:
    """A network runs in a further precision only where the GPU computes otherwise: CNNs in FP32, others in TF32."""
    for name, precisions in (("T4", {"mixed", "fp16"}), ("V100", {"mixed", "fp16"}), ("A100", set(PRECISIONS))):
        tasks = {task.workload for setup, _ in _steps(300, name) for task in setup.residents}
        assert {task.precision for task in tasks} == precisions
        assert {catalogue.kind(task.model) for task in tasks if task.precision == "fp32"} <= {"cnn"}
        assert "cnn" not in {catalogue.kind(task.model) for task in tasks if task.precision == "tf32"}


@pytest.mark.parametrize("name", ["T4", "A100"])
def test_setups_fit(name: str) -> None:
    """Setups fit their GPU, and visits of each are numbered."""
    seen: set[tuple[str, int]] = set()
    for setup, number in _steps(900, name, clocks=True):
        assert sum(memory_mib(task.workload) for task in setup.residents) <= gpu(name).memory_mib
        assert len(setup.residents) <= gpu(name).mps_clients
        assert setup.sm_mhz in gpu(name).clocks_mhz
        assert number == 1 or (str(setup), number - 1) in seen
        assert (str(setup), number) not in seen
        seen.add((str(setup), number))


def test_figure_settings() -> None:
    """A budget of nine minutes has the settings of Figs. 3 and 4."""
    steps = _steps(600, clocks=True)
    planned = budget_plan.forecast(steps, budget_plan.PROTOCOL, 540.0, start_s=budget_plan.START_S)
    assert len(planned) < len(steps)
    early = [setup for setup, _ in steps[: len(planned)]]
    assert set(budget_plan.figure_setups(A100, clocks=True)) <= set(early)
    pairs = {tuple(sorted(task.workload.model for task in setup.residents)) for setup in early}
    assert {tuple(sorted(pair)) for pair in budget_plan.PAIRS} <= pairs


class Counting(EmulatedDevice):
    """A device that adds up the time over its restarts."""

    spent_s = 0.0

    def advance(self, to_s: float) -> list[int]:
        self.spent_s += to_s - self.read().time_s
        return super().advance(to_s)


def test_within_budget(tmp_path: Path) -> None:
    """A recording uses its budget and stays within it."""
    device = Counting(A100)
    table = store.read(profile(device, tmp_path, budget_s=300.0))
    assert 280.0 < device.spent_s <= 300.0 + 1e-6
    assert set(table["workload"]) == set(paper_models())


def test_larger_budget(tmp_path: Path) -> None:
    """A larger budget continues the recording of a smaller one; one without time for a visit is refused."""
    journal = tmp_path / "journal"
    small = record_within_budget(emulated("A100"), 120.0, journal=journal)
    kept = journal.read_bytes()
    large = record_within_budget(emulated("A100"), 200.0, journal=journal)
    assert journal.read_bytes().startswith(kept)
    assert len(large) > len(small)
    assert store.as_csv(large) == store.as_csv(record_within_budget(emulated("A100"), 200.0))
    assert store.as_csv(record_within_budget(emulated("A100"), 120.0, journal=journal)) == store.as_csv(small)
    with pytest.raises(InputError, match="12 s"):
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


@pytest.mark.parametrize("after", [1, 30])
def test_interrupted(tmp_path: Path, after: int) -> None:
    """An interrupted recording continues, with the result of one that was not."""
    journal = tmp_path / "journal"
    with pytest.raises(DeviceError, match="broken"):
        record_within_budget(Failing(after), 200.0, journal=journal)
    kept = journal.read_bytes()
    table = record_within_budget(emulated("A100"), 200.0, journal=journal)
    assert journal.read_bytes().startswith(kept)
    assert store.as_csv(table) == store.as_csv(record_within_budget(emulated("A100"), 200.0))


@pytest.mark.parametrize(
    ("changed", "found"), [({"design": "0"}, "design=0"), ({"arithmetic": None}, "arithmetic=None")]
)
def test_other_plan(tmp_path: Path, changed: dict[str, object], found: str) -> None:
    """The journal of another plan or arithmetic is not continued."""
    record_within_budget(emulated("A100"), 60.0, journal=tmp_path / "own")
    own = Journal(tmp_path / "own", "recording")
    other = Journal(tmp_path / "other", "recording")
    other.append({"recording": {**own.entries[0]["recording"], **changed}})
    own.close()
    other.close()
    with pytest.raises(InputError, match=found):
        record_within_budget(emulated("A100"), 60.0, journal=tmp_path / "other")


def test_copies(tmp_path: Path) -> None:
    """Equal copies are measured as the device model says, and a GPU that waits as idle."""
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


def test_dry_run(tmp_path: Path) -> None:
    """`profile --dry-run` prints what is then recorded."""
    command = ["profile", "--device", "emulated:A100", "--budget", "5m", "--dry-run", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert "A100 (emulated)" in shown.stdout
    assert not list(tmp_path.iterdir())
    printed = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert printed["points"] == len(record_within_budget(emulated("A100"), 300.0, clocks=True))
    assert printed["minutes"] <= 5.0


class Card(EmulatedDevice):
    """A device that says it is real."""

    provenance, uuid = "measured", "GPU-0"


@pytest.mark.parametrize(("more", "failure"), [((), ""), ((), "no profiler"), (("--kernels", "none"), "")])
def test_kernel_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], failure: str) -> None:
    """`profile` of a real GPU traces its kernels afterwards, unless told not to."""
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
