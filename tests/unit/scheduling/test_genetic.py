"""The genetic algorithm of stage 1: evaluations, archive, operators; and the settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.scheduling.genetic import Schemes, search
from heshare.scheduling.objectives import Instance, evaluate_schemes, make_instance
from heshare.scheduling.operators import random_schemes
from heshare.scheduling.pareto import non_dominated
from heshare.scheduling.settings import STAGE_2, Settings
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster

SHORT = Settings(generations=60)


@pytest.fixture(scope="module")
def instance() -> Instance:
    return make_instance(mixed_tasks(40), Cluster.parse("2xT4,2xV100,1xA100"), Toy(demand=DEMANDS))


def short_search(instance: Instance, settings: Settings = SHORT, seed: int = 1) -> Schemes:
    return search(instance, settings, np.random.default_rng(seed))


def test_front(instance: Instance) -> None:
    """Search evaluates population times generations, and returns a bounded front with the objectives of its schemes."""
    schemes = short_search(instance)
    assert schemes.evaluations == 50 * 60
    assert len(short_search(instance, replace(SHORT, archive=7)).objectives) <= 7 < len(schemes.objectives)
    assert non_dominated(schemes.objectives).all()
    np.testing.assert_array_equal(evaluate_schemes(schemes.gpus, instance), schemes.objectives)
    assert (np.diff(schemes.objectives[:, 0]) > 0).all()


def test_same_seed(instance: Instance) -> None:
    """Search with the same seed returns the same bytes."""
    first, second = short_search(instance), short_search(instance)
    assert first.gpus.tobytes() == second.gpus.tobytes()
    assert first.objectives.tobytes() == second.objectives.tobytes()
    assert short_search(instance, seed=2).objectives.tobytes() != first.objectives.tobytes()


def test_stage_2_settings(instance: Instance) -> None:
    """Stage 1 reads no setting of stage 2."""
    changes = {"solutions": 5, "batching": "single", "mps_pcts": (50, 100), "mps_goal": "none", "clocks": 3}
    changes |= {"clock_scope": "plan", "piecewise": False, "merge": 5, "front": 5}
    assert set(changes) == STAGE_2
    other = short_search(instance, replace(SHORT, **changes))
    assert other.gpus.tobytes() == short_search(instance).gpus.tobytes()


def test_progress(instance: Instance) -> None:
    """Progress is called each generation and can stop the search."""
    calls: list[tuple[int, int]] = []

    def stop_after_three(done: int, total: int) -> bool:
        calls.append((done, total))
        return done < 3

    schemes = search(instance, SHORT, np.random.default_rng(1), stop_after_three)
    assert calls == [(1, 60), (2, 60), (3, 60)]
    assert schemes.evaluations == 150


def test_beats_random(instance: Instance) -> None:
    """Search beats as many random schemes."""
    schemes = short_search(instance)
    random = evaluate_schemes(random_schemes(instance.fits, 3000, np.random.default_rng(1)), instance)
    union = np.concatenate((schemes.objectives, random))
    assert non_dominated(union)[: len(schemes.objectives)].all()


def test_literal_settings() -> None:
    """Literal settings mutate each task and take other parameters."""
    literal = Settings.literal(generations=7)
    assert literal.mutation_rate == 1.0  # "for each task"
    assert (literal.generations, literal.piecewise, literal.clock_scope) == (7, False, "plan")
    with pytest.raises(InputError, match="mutation_rat"):
        Settings.literal(mutation_rat=0.5)


def test_ranges_of_settings() -> None:
    """The least settings are accepted and others refused."""
    least = {"population": 2, "generations": 1, "archive": 2, "solutions": 2, "clocks": 1, "merge": 2, "front": 3}
    settings = Settings(**least, overload=0)  # type: ignore[arg-type]
    assert {name: getattr(settings, name) for name in least} == least
    for name, value in least.items():
        for bad in (value - 1, value + 0.5):
            with pytest.raises(InputError, match=f"{name}: .*a whole number of at least {value}"):
                Settings(**{name: bad})  # type: ignore[arg-type]
    others = {"mutation_rate": 1.5, "segments": "total", "mps_pcts": (10, 50)}
    for name, value in [*others.items(), ("mps_pcts", (50, 10, 100))]:  # type: ignore[assignment]
        with pytest.raises(InputError, match=f"argument {name}"):
            Settings(**{name: value})  # type: ignore[arg-type]
