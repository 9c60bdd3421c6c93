"""The improved scheduler as a whole: rounds, progress, budget, and its settings."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.brute_force import executed
from support.toy_predictor import DEMANDS, Toy, mixed_tasks

from heshare.lab.plus.batch_table import BatchChoices, BatchTable
from heshare.lab.plus.heshare_plus import PlusSearch, SearchSettings, optimise
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.pareto import non_dominated
from heshare.shared.errors import InputError
from heshare.world.cluster import Cluster

SMALL = SearchSettings(
    rounds=3, weights=5, coarse_weights=3, perturbations=1, choices=BatchChoices(clocks=3, mps_variants=2)
)


def test_stopped() -> None:
    """The search stops if its callback returns False."""
    rounds: list[int] = []
    optimise(
        mixed_tasks(6), Cluster.parse("1xT4,1xA100"), Toy(demand=DEMANDS), rng=np.random.default_rng(0), effort=SMALL,
        progress=lambda done, front: rounds.append(done) or (len(front) > 0 and done < 2),
    )  # fmt: skip
    assert rounds == [1, 2]


def test_no_budget_left() -> None:
    """Without any budget left, the front is that of the first round."""
    tasks, cluster = mixed_tasks(8), Cluster.parse("1xT4,1xA100")
    front = optimise(tasks, cluster, Toy(demand=DEMANDS), rng=np.random.default_rng(0), effort=SMALL, budget_s=0.0)
    assert non_dominated(front.objectives).all()
    world = make_instance(tasks, cluster, Toy(demand=DEMANDS))
    for plan in (front.en_opt, front.trade_off, front.jct_opt):
        assert sorted(plan.scheme) == sorted(task.id for task in tasks)  # the plan itself checks memory and clocks
        np.testing.assert_allclose((plan.energy_j, plan.jct_s), executed(plan, world, Toy(demand=DEMANDS)), rtol=1e-9)


def test_rounds() -> None:
    """Fronts of later rounds are not dominated by earlier ones."""
    toy = Toy(demand=DEMANDS)
    table = BatchTable(make_instance(mixed_tasks(12), Cluster.parse("2xT4,1xA100"), toy), toy, SMALL.choices)
    fronts = []
    search = PlusSearch(table, SMALL, np.random.default_rng(3))
    search.run(None, lambda done, front: fronts.append(front))
    for early, late in pairwise(fronts):
        joined = np.concatenate((late, early))
        assert non_dominated(joined)[len(late) :].sum() == 0


@pytest.mark.parametrize("changed", [{"rounds": 0}, {"weights": 1}, {"labels": 2}])
def test_bad_settings(changed: dict[str, int]) -> None:
    """Settings out of range are refused."""
    with pytest.raises(InputError, match=next(iter(changed))):
        SearchSettings(**changed)  # type: ignore[arg-type]
