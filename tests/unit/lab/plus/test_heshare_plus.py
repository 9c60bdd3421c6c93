"""The improved scheduler as a whole: rounds, progress, budget, and its settings."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
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


@pytest.mark.parametrize(("budget_s", "expected"), [(None, [1, 2]), (0.0, [1])])
def test_stopped(budget_s: float | None, expected: list[int]) -> None:
    """The search stops if its callback returns False, and after the first round if no budget is left."""
    rounds: list[int] = []

    def progress(done: int, front: np.ndarray) -> bool:
        rounds.append(done)
        return len(front) > 0 and done < 2

    optimise(
        mixed_tasks(6),
        Cluster.parse("1xT4,1xA100"),
        Toy(demand=DEMANDS),
        rng=np.random.default_rng(0),
        effort=SMALL,
        budget_s=budget_s,
        progress=progress,
    )
    assert rounds == expected


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (SearchSettings, "rounds", 0),
        (SearchSettings, "weights", 1),
        (SearchSettings, "labels", 2),
        (BatchChoices, "width", 0),
        (BatchChoices, "mps_variants", 0),
        (BatchChoices, "mps_pcts", (50,)),
        (BatchChoices, "mps_pcts", (100, 50)),
    ],
)
def test_out_of_range(kind: type, name: str, value: object) -> None:
    """Settings out of range are refused."""
    with pytest.raises(InputError, match=name):
        kind(**{name: value})


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
