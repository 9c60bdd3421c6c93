"""Tables of predictions that stay with their predictor between searches with a budget.

Tables take seconds to fill, so that a second search for the same workloads has them from the start. A search without a
budget has tables of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from heshare.lab.plus.costs import rate_tables
from heshare.lab.plus.rates import Rates
from heshare.lab.plus.search_settings import BatchChoices
from heshare.prediction.predictor import Predictor
from heshare.scheduling.objectives import Instance
from heshare.world.gpu import Gpu
from heshare.world.workload import Workload

MOST_WORKLOADS = 64
"""Workloads up to which tables are extended by those of further task sets: they grow with the third power."""


class KeptTables:
    """Tables of some types of GPU for one set of workloads; a copy or pickle of them is empty."""

    def __init__(self) -> None:
        self.workloads: tuple[Workload, ...] = ()
        self.of_gpu: dict[Gpu, Rates] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptTables, ()


@contextmanager
def kept_tables(world: Instance, predictor: Predictor, choices: BatchChoices) -> Iterator[tuple[Rates, ...]]:
    """Yield the tables of each type of GPU of an instance, as far as they are filled, and keep them afterwards.

    One search has them at a time; another one meanwhile begins with empty ones. After an error they are not kept.
    """
    derived: dict[object, Any] = getattr(predictor, "derived", {})
    kept = derived.pop((KeptTables, choices), None) or KeptTables()
    needed = {task.workload for task in world.tasks}
    if not needed.issubset(kept.workloads):
        union = tuple(sorted(needed.union(kept.workloads)))
        if len(union) <= MOST_WORKLOADS:
            kept.of_gpu = {gpu: rates.extended(union) for gpu, rates in kept.of_gpu.items()}
            kept.workloads = union
        else:
            kept.of_gpu, kept.workloads = {}, tuple(sorted(needed))
    new = rate_tables(world, kept.workloads, predictor, choices)
    for gpu, rates in zip(world.kinds, new, strict=True):
        kept.of_gpu.setdefault(gpu, rates)
    yield tuple([kept.of_gpu[gpu] for gpu in world.kinds])
    derived[KeptTables, choices] = kept
