"""Task sets: MISO's recipe, load classes, arrivals, and arguments out of their range."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heshare.shared.errors import InputError
from heshare.world.arrivals import ARRIVALS
from heshare.world.catalogue import paper_models
from heshare.world.job_trace import TraceJob
from heshare.world.task_set import (
    LOADS,
    helios_durations_s,
    models_of,
    recipe_durations_s,
    sample_durations_s,
    task_set,
)
from heshare.world.workload import Workload


def alone_s(workload: Workload) -> float:
    return 0.01 * workload.batch_size


def make(seed: int = 1, **arguments):
    return task_set(rng=np.random.default_rng(seed), time_alone_s=alone_s, **arguments)


def test_recipe_durations_on_a_small_trace() -> None:
    """101 jobs of 100, 101 .. 200 s: percentile p lies at 100 + p s, and 120 s is the floor."""
    jobs = [TraceJob(i, 0.0, 100.0 + i, 1) for i in range(101)]
    assert recipe_durations_s(jobs) == pytest.approx(np.maximum(100.0 + np.arange(100), 120.0))


def test_range_of_jobs() -> None:
    """Durations are those of GPU jobs between a minute and two hours."""
    kept = [TraceJob(0, 0.0, 60.5, 1), TraceJob(1, 0.0, 7200.0, 8)]
    left_out = [TraceJob(2, 0.0, 60.0, 1), TraceJob(3, 0.0, 7200.5, 1), TraceJob(4, 0.0, 1000.0, 0)]
    durations_s = recipe_durations_s(kept + left_out)
    assert durations_s == pytest.approx(recipe_durations_s(kept))
    assert durations_s[0] == 120.0
    assert durations_s[99] == pytest.approx(60.5 + 0.99 * (7200.0 - 60.5))
    with pytest.raises(InputError, match="no GPU job"):
        recipe_durations_s([TraceJob(0, 0.0, 10.0, 1)])


def test_helios() -> None:
    """Helios durations are those of the recipe."""
    durations_s = helios_durations_s()
    assert durations_s.shape == (100,)
    assert (np.diff(durations_s) >= 0).all()
    assert durations_s[0] == 120.0
    assert durations_s[50] == 248.0  # as published in MISO's trace of 100 jobs


def test_without_replacement(rng: np.random.Generator) -> None:
    """Durations are drawn without replacement up to the number of percentiles."""
    percentiles = np.arange(1.0, 101.0)
    assert sorted(sample_durations_s(100, rng=rng, percentiles=percentiles)) == percentiles.tolist()
    many = sample_durations_s(250, rng=rng, percentiles=percentiles)
    assert np.bincount(many.astype(int))[1:].tolist() == [3] * 50 + [2] * 50
    few = sample_durations_s(60, rng=rng, percentiles=percentiles)
    assert len(set(few)) == 60
    assert few.tolist() != sorted(few)


def test_load_classes() -> None:
    """Load classes partition the models of Table IV."""
    low, medium, high, mixed = (models_of(load) for load in LOADS)
    assert mixed == tuple(paper_models())
    assert sorted(low + medium + high) == sorted(mixed)
    assert {"mobilenet", "mobilenetv2", "resnet18", "resnet34"} == set(low)
    assert {"bert_large", "gpt2", "transformer"} == set(high)


@pytest.mark.parametrize("load", LOADS)
def test_all_models(load: str) -> None:
    """All models of a load class are drawn, and no others."""
    tasks = make(n=400, load=load)
    assert {task.workload.model for task in tasks} == set(models_of(load))
    assert {task.workload.batch_size for task in tasks} == {4, 8}
    assert tasks == make(n=400, load=load) != make(n=400, load=load, seed=4)


def test_iterations() -> None:
    """Iterations are durations over the time alone."""
    for options, expected_s in (({"n": 100}, helios_durations_s()), ({"n": 3, "percentiles": [1.0, 2.0]}, [1, 1, 2])):
        durations_s = [task.iterations * alone_s(task.workload) for task in make(**options)]
        assert sorted(durations_s) == pytest.approx(expected_s)


def test_arrivals() -> None:
    """The same tasks are drawn for all arrivals."""
    sets = [make(n=30, arrivals=arrivals) for arrivals in ARRIVALS]
    contents = [[(task.id, task.workload, task.iterations) for task in tasks] for tasks in sets]
    assert contents[0] == contents[1] == contents[2] == contents[3]
    assert len({tuple(task.arrival_s for task in tasks) for tasks in sets}) == 4


def test_trace(tmp_path: Path) -> None:
    """Durations come from a trace."""
    jobs = [TraceJob(i, 0.0, 300.0, 1) for i in range(5)]
    path = tmp_path / "trace.csv"
    lines = [f"{i},2020-09-01 00:00:00,300,1" for i in range(5)]
    path.write_text("\n".join(["job_id,submit_time,duration_s,gpu_num", *lines]), encoding="utf-8")
    for trace in (jobs, iter(jobs), path, str(path)):
        assert {round(t.iterations * alone_s(t.workload), 6) for t in make(n=10, trace=trace)} == {300.0}


@pytest.mark.parametrize(
    ("arguments", "column"),
    [
        ({"n": 2.5}, "n"),
        ({"load": "heavy"}, "load"),
        ({"arrivals": "poison"}, "arrivals"),
        ({"interval_s": float("nan")}, "interval_s"),
        ({"batch_sizes": ()}, "batch_sizes"),
        ({"batch_sizes": (4, 2.5)}, "batch_sizes"),
        ({"percentiles": ["long"]}, "percentiles"),
        ({"percentiles": [1.0], "trace": [TraceJob(0, 0.0, 100.0, 1)]}, "trace"),
    ],
    ids=str,
)
def test_refusals(arguments: dict, column: str) -> None:
    """An argument out of its range is named."""
    with pytest.raises(InputError) as caught:
        make(**arguments)
    assert caught.value.column == column


def test_bad_time_alone(rng: np.random.Generator) -> None:
    """A bad time alone is refused."""
    for seconds in (0.0, float("nan")):
        with pytest.raises(InputError, match="time_alone_s"):
            task_set(rng=rng, time_alone_s=lambda _, seconds=seconds: seconds)
