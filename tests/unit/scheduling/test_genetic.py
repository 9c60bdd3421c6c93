"""The search: its account of evaluations, its archive, and that its parts help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.errors import InputError
from heshare.scheduling.genetic import Schemes, search
from heshare.scheduling.objectives import Instance, instance, objectives
from heshare.scheduling.operators import anywhere
from heshare.scheduling.pareto import hypervolume, non_dominated
from heshare.scheduling.settings import Settings
from heshare.world.cluster import Cluster

SHORT = Settings(generations=60)


@pytest.fixture(scope="module")
def world() -> Instance:
    return instance(mixed_tasks(40), Cluster.parse("2xT4,2xV100,1xA100"), Toy(demand=DEMANDS))


def run(world: Instance, settings: Settings = SHORT, seed: int = 1) -> Schemes:
    return search(world, settings, np.random.default_rng(seed))


def test_archive_is_a_front_with_the_objectives_of_its_schemes(world: Instance) -> None:
    found = run(world)
    assert non_dominated(found.objectives).all()
    np.testing.assert_array_equal(objectives(found.gpus, world), found.objectives)
    assert (np.diff(found.objectives[:, 0]) > 0).all()


def test_evaluations_are_population_times_generations(world: Instance) -> None:
    assert run(world).evaluations == 50 * 60


def test_same_seed_same_bytes(world: Instance) -> None:
    one, other = run(world), run(world)
    assert one.gpus.tobytes() == other.gpus.tobytes()
    assert one.objectives.tobytes() == other.objectives.tobytes()
    assert run(world, seed=2).objectives.tobytes() != one.objectives.tobytes()


def test_archive_is_bounded(world: Instance) -> None:
    assert len(run(world, replace(SHORT, archive=7)).objectives) <= 7


def test_progress_is_told_and_can_stop(world: Instance) -> None:
    seen: list[tuple[int, int]] = []

    def three(done: int, total: int) -> bool:
        seen.append((done, total))
        return done < 3

    found = search(world, SHORT, np.random.default_rng(1), three)
    assert seen == [(1, 60), (2, 60), (3, 60)]
    assert found.evaluations == 150


def test_odd_populations_work(world: Instance) -> None:
    assert run(world, replace(SHORT, population=7, generations=5)).evaluations == 35


def relative_hypervolume(found: Schemes, others: list[Schemes]) -> float:
    everything = np.concatenate([one.objectives for one in [found, *others]])
    low, high = everything.min(axis=0), everything[non_dominated(everything)].max(axis=0)
    return hypervolume((found.objectives - low) / (high - low), np.array([1.1, 1.1]))


def test_the_default_reading_beats_the_literal_one(world: Instance) -> None:
    default, literal = run(world), run(world, Settings.literal(generations=60))
    assert relative_hypervolume(default, [literal]) > relative_hypervolume(literal, [default])


def test_load_aware_targets_beat_static_ones(world: Instance) -> None:
    aware, static = run(world), run(world, replace(SHORT, targets="static"))
    assert relative_hypervolume(aware, [static]) > relative_hypervolume(static, [aware])


def test_the_search_beats_as_many_random_schemes(world: Instance) -> None:
    found = run(world)
    drawn = objectives(anywhere(world.fits, 3000, np.random.default_rng(1)), world)
    both = np.concatenate((found.objectives, drawn))
    assert non_dominated(both)[: len(found.objectives)].all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("population", 1),
        ("mutation_rate", 1.5),
        ("segments", "total"),
        ("mps_pcts", (50, 10, 100)),
        ("mps_pcts", (10, 50)),
        ("clocks", 0),
    ],
)
def test_a_setting_out_of_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"column {name}"):
        Settings(**{name: value})  # type: ignore[arg-type]


def test_an_unknown_literal_setting_is_refused() -> None:
    with pytest.raises(InputError, match="mutation_rat"):
        Settings.literal(mutation_rat=0.5)


def test_the_literal_reading_differs_where_the_default_reads_otherwise() -> None:
    default, literal = Settings(), Settings.literal(generations=7)
    changed = {name for name in Settings.__dataclass_fields__ if getattr(default, name) != getattr(literal, name)}
    assert changed - {"generations"} == {
        "mutation_rate",
        "seed_mutation",
        "segments",
        "targets",
        "mps_goal",
        "clock_scope",
        "piecewise",
    }
    assert literal.mutation_rate == 1.0  # "for each task"
    assert literal.generations == 7
