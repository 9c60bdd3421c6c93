"""The physics predictor: roofline, learned residuals, intervals, and independence of order and history."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heshare.devices import iteration_time
from heshare.devices.iteration_time import overlap_arrays
from heshare.lab.plus.physics.least_squares import least_squares
from heshare.lab.plus.physics.physics_predictor import PhysicsModel, load_predictor, sets_of_samples
from heshare.lab.plus.physics.roofline import PARTS, IterationParts, ResidentSets, Roofline
from heshare.prediction.features import is_reference
from heshare.prediction.samples import profile_samples
from heshare.profiles import store
from heshare.shared import files
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu, paper_models
from heshare.world.workload import Resident, Workload, parse_resident

A100, T4 = gpu("A100"), gpu("T4")
SETS = [
    tuple(map(parse_resident, texts))
    for texts in (
        ("resnet50:4@50", "vgg19:8@50"),
        ("gpt2:4@30", "bert_large:8@40", "mobilenet:4@20"),
        ("densenet121:4@100",),
        ("vgg16:8@60", "vgg16:8@60"),
    )
]
# host 5 ms, memory 2 ms, work 8 ms
TASK = dict(zip(PARTS, (0.0100002, 0.005, 0.002, 0.008, 1.0, 0.3, 0.2, 100.0, 0.8), strict=True))


@pytest.fixture(scope="module")
def profiles(checkout: Path) -> pd.DataFrame:
    return store.read_shipped()


def _set(shares: list[float], mhz: float = 1410.0, **changed: float) -> ResidentSets:
    tasks = np.array([list((TASK | changed).values())] * len(shares))
    return ResidentSets.on(A100, 50.0, tasks, np.array(shares), [len(shares)], np.array([mhz]))


def test_least_squares_finds_a_line_and_stays_between_bounds() -> None:
    x = np.linspace(0, 1, 30)
    y = 2 + 3 * x
    free = least_squares(lambda k: k[0] + k[1] * x - y, np.zeros(2), np.full(2, -9.0), np.full(2, 9.0), rounds=40)
    assert free == pytest.approx([2, 3], abs=1e-4)
    bounded = least_squares(
        lambda k: k[0] + k[1] * x - y, np.zeros(2), np.full(2, -9.0), np.array([9.0, 1.0]), rounds=40
    )
    assert bounded[1] <= 1


def test_least_squares_with_a_scale_gives_an_outlier_little_weight() -> None:
    values = np.array([1.0, 1.01, 0.99, 1.0, 30.0])
    bounds = np.full(1, -99.0), np.full(1, 99.0)
    plain = least_squares(lambda k: k[0] - values, np.zeros(1), *bounds, rounds=60)
    robust = least_squares(lambda k: k[0] - values, np.zeros(1), *bounds, rounds=60, scale=0.05)
    assert plain[0] == pytest.approx(values.mean(), abs=0.01)
    assert robust[0] == pytest.approx(1.0, abs=0.1)


def test_roofline_of_a_task_alone_is_its_reference_row() -> None:
    state = Roofline().run(_set([1.0]))
    assert state.time_s[0] == pytest.approx(TASK["time_s"], rel=1e-9)
    assert state.power_w[0] == pytest.approx(50 + 100, rel=0.01)


def test_roofline_never_falls_with_less_share_less_clock_or_more_co_runners() -> None:
    model = Roofline()
    by_share = [model.run(_set([share])).time_s[0] for share in (1.0, 0.8, 0.5, 0.2, 0.1)]
    by_clock = [model.run(_set([1.0], mhz)).time_s[0] for mhz in (1410.0, 1200.0, 900.0, 300.0)]
    by_co_runners = [model.run(_set([0.5] * size)).time_s[0] for size in (1, 2, 4, 8)]
    for times in (by_share, by_clock, by_co_runners):
        assert times == sorted(times)
        assert times[-1] > 1.5 * times[0]


def test_roofline_lowers_the_clock_at_the_power_limit() -> None:
    state = Roofline().run(_set([1.0, 1.0], dynamic_w=900.0))
    assert state.power_w[0] == pytest.approx(A100.tdp_w, rel=1e-3)
    assert state.clock[0] < 1
    assert state.time_s[0] > Roofline().run(_set([1.0, 1.0], dynamic_w=10.0)).time_s[0]


def test_iteration_parts_recover_the_parts_of_a_made_up_task() -> None:
    sizes = np.array([1, 2, 4, 8, 16, 32])
    work, memory, host = 0.001 * sizes, 0.0005 + 0.0004 * sizes, 0.006
    time_s = (host**8 + (work + memory) ** 8) ** (1 / 8)
    table = pd.DataFrame(
        {
            "gpu": "A100", "workload": "resnet50", "precision": "fp32", "engine": "eager", "batch_size": sizes,
            "co_runners": "", "mps_pct": 100, "sm_mhz": 1410, "sm_mhz_reached": 1410.0, "time_s": time_s,
            "sm_util_pct": 100 * work / time_s, "dram_util_pct": 30.0, "l2_util_pct": 20.0, "power_w": 200.0,
            "idle_w": 50.0,
        }
    )  # fmt: skip
    parts = dict(zip(PARTS, IterationParts(table).of("A100", Workload("resnet50", 16)), strict=True))
    assert parts["host_s"] == pytest.approx(host, rel=0.02)
    assert parts["memory_s"] == pytest.approx(memory[4], rel=0.02)
    assert parts["work_s"] == pytest.approx(work[4], rel=1e-6)
    assert parts["dynamic_w"] == pytest.approx(150)
    between = IterationParts(table).of("A100", Workload("resnet50", 11))
    assert time_s[3] < between[0] < time_s[4]
    with pytest.raises(InputError, match="Record resnet50:64"):
        IterationParts(table).of("A100", Workload("resnet50", 64))


def test_overlap_exponent_explains_the_reference_rows_best(monkeypatch: pytest.MonkeyPatch) -> None:
    table = store.read(files.data("profiles", "emulated", "A100"))
    alone = table[is_reference(table)]

    def unexplained(exponent: float) -> float:
        monkeypatch.setattr(iteration_time, "OVERLAP", exponent)
        found = IterationParts(table)
        gaps = []
        for row in alone.itertuples():
            part = dict(zip(PARTS, found.of("A100", Workload(row.workload, row.batch_size)), strict=True))
            modelled = overlap_arrays(part["host_s"], part["memory_s"] + part["work_s"] / part["clock"])
            gaps.append(np.log(modelled / row.time_s))
        return float(np.sqrt(np.mean(np.square(gaps))))

    chosen = iteration_time.OVERLAP
    assert min((2.0, 4.0, 8.0, 16.0), key=unexplained) == chosen


@pytest.mark.slow
def test_physics_model_errors_on_new_workloads_are_small(profiles: pd.DataFrame) -> None:
    all_samples = profile_samples(profiles)
    samples, sets, (time_s, power_w) = all_samples.rows, sets_of_samples(all_samples), all_samples.truth.T
    new = samples["workload"].isin(["resnet50", "gpt2", "mobilenet"]).to_numpy()
    train, test = np.flatnonzero(~new), np.flatnonzero(new)
    train_sets = sets.pick(train)
    model = PhysicsModel(seed=0).fit(train_sets, time_s[train], power_w[train])
    predicted_s, predicted_w = model.predict_first(sets.pick(test))
    gap_s, gap_w = np.abs(predicted_s / time_s[test] - 1), np.abs(predicted_w / power_w[test] - 1)
    assert gap_s.mean() < 0.10
    assert gap_w.mean() < 0.05
    without_power = PhysicsModel(seed=0).fit(train_sets, time_s[train], np.full(len(train), np.nan))
    assert np.isfinite(without_power.predict_first(sets.pick(test))[0]).all()


def test_load_predictor_refuses_unknown_kinds() -> None:
    with pytest.raises(InputError, match="forest or physics"):
        load_predictor(kind="oracle")


@pytest.mark.slow
def test_solo_at_the_top_clock_is_the_reference_row(profiles: pd.DataFrame) -> None:
    row = profiles[is_reference(profiles) & (profiles["gpu"] == "A100")].iloc[7]
    predictor = load_predictor(kind="physics")
    predicted = predictor.solo([Workload(row["workload"], int(row["batch_size"]))], A100)
    assert predicted.time_s.tolist() == [[row["time_s"]]]
    assert predictor.calls == 0


def test_co_run_does_not_depend_on_the_order_or_earlier_calls(rng: np.random.Generator) -> None:
    names = sorted(paper_models())
    sets = [
        tuple(Resident(Workload(str(rng.choice(names)), 4), 10 * int(rng.integers(1, 11))) for _ in range(size))
        for size in rng.integers(1, 9, size=40)
    ]
    bulk, single = load_predictor(kind="physics").co_run(sets, T4, [None] * 40), load_predictor(kind="physics")
    for row in rng.permutation(40).tolist():
        members = sets[row]
        predicted = single.co_run([members[::-1]], T4, [None])
        assert predicted.time_s[0, ::-1].tolist() == bulk.time_s[row, : len(members)].tolist()
        assert predicted.power_w[0] == bulk.power_w[row]


PROGRAM = """
import hashlib, sys
import numpy as np
keep = [np.empty(int(sys.argv[1]) + 3 * i, dtype=np.int8) for i in range(500)]
from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.world.catalogue import gpu
from heshare.world.workload import parse_resident
sets = [tuple(map(parse_resident, text.split("+"))) for text in {texts!r}]
predicted = load_predictor(kind="physics").co_run(sets, gpu("A100"), [None, 1200, 900, 1410])
print(hashlib.sha256(predicted.time_s.tobytes() + predicted.power_w.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_co_run_has_the_same_bytes_in_another_process(checkout: Path) -> None:
    predicted = load_predictor(kind="physics").co_run(SETS, A100, [None, 1200, 900, 1410])
    here = hashlib.sha256(predicted.time_s.tobytes() + predicted.power_w.tobytes()).hexdigest()
    program = PROGRAM.format(texts=["+".join(map(str, members)) for members in SETS])
    environment = os.environ | {"PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program, "24"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == here
