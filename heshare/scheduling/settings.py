"""Settings of HeShare: every choice that the paper leaves open, as one named parameter with its default."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from heshare.shared.errors import require

LITERAL: Mapping[str, Any] = MappingProxyType(
    {
        "mutation_rate": 1.0,
        "seed_mutation": 0.0,
        "segments": "totals",
        "targets": "static",
        "mps_goal": "own",
        "clock_scope": "plan",
        "piecewise": False,
    }
)
"""The settings in which the defaults depart from the paper's text, with the values that follow the text."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of both stages. The defaults are the reading that works; `literal()` follows the paper's text.

    Attributes:
        initialisation: the first population (Section III-B 2a). `rank` is multi-objective initialisation; `random`
            puts each task on a random GPU that it fits.
        crossover: the selection of inherited segments (Section III-B 2b). `elitism` is multi-objective elitism
            selection; `uniform` takes each task's GPU from a random parent.
        mutation: Section III-B 2c. `priority` is priority mutation; `reset` moves a task to a random GPU that it fits.
        recovery: whether task recovery follows task migration (Section III-B 2c); `priority` mutation only.
        population: individuals of the genetic algorithm (Section III-B 2). The paper gives this number only for the
            algorithms that it compares with (Section V-A).
        generations: generations, the initial population included (Section III-B 2; the number as for `population`);
            50 x 500 is 25,000 evaluations.
        mutation_rate: chance that a task of an offspring migrates (Section III-B 2c). The paper migrates "each task",
            which is 1.0; Section V-A gives 0.1 for the algorithms that it compares with.
        seed_mutation: chance that a task of an initial individual leaves its best-ranked GPU, drawn for each
            individual between 0 and this (Section III-B 2a). By the paper only ties are random, which is 0.
        segments: the value by which elitism selection compares "each GPU subset's total energy consumption and
            average job completion time" (Section III-B 2b). `normalised` divides both by the least that the tasks
            need on any GPU; `totals` does not, and favours the parent that left the GPU empty.
        targets: the target GPUs of task migration (Section III-B 2c, which does not define "degradation").
            `load-aware` counts the queues of the GPUs; `static` takes the best GPU for the task alone.
        overload: task recovery begins when a GPU's busy time exceeds this many times the mean of all GPUs (Section
            III-B 2c, which does not define "resource overload").
        archive: largest size of the Pareto set PS of stage 1 (input of Algorithm 1).
        solutions: largest number of schemes of PS that stage 2 configures (Algorithm 1, line 2); by default all. Of
            more than 200 tasks it configures so many that together they place 40,000 tasks, or 20.
        batching: where queues are split (Algorithm 1, line 5). `jct` splits if that lowers the average JCT; `memory`
            only where memory or the MPS clients end; `single` after every task, so that no tasks share.
        mps_pcts: MPS percentages to choose from, MPS_configs of Algorithm 1.
        mps_goal: what a task's percentage minimises (Algorithm 1, line 8). `own` is the JCT of the task, as in the
            paper; `batch` the sum of JCTs of its batch; `queue` the same with the delay of the tasks behind; `both`
            the energy of its batch times that sum (Eq. 16 minimises both). `none` gives all tasks 100 %.
        clocks: number of SM clocks tried for each GPU, GPU_freqs of Algorithm 1: evenly spaced over the clocks that
            it offers, with both ends.
        clock_scope: `gpu` chooses a clock for each GPU; `plan` the same step of the list for all, as Algorithm 1,
            line 12, reads; `none` leaves every GPU at its default clock.
        piecewise: whether the energy and JCT of a plan count that the other tasks of a batch speed up when a task
            ends, as on a device. False is Eq. 13: all run as if all stayed until the end. Batches and MPS
            percentages are chosen by Eq. 13 in either case: the split rule looks only at the next task, and without
            Eq. 13's penalty for staying the batches grow too large.
        merge: largest number of partial plans kept while the clocks of the GPUs are combined (Algorithm 1, lines
            12-21, where the set can grow without a bound).
        front: largest number of plans in the final front PS' (Algorithm 1, line 23).

    Raises:
        InputError: a value is out of its range.
    """

    initialisation: Literal["rank", "random"] = "rank"
    crossover: Literal["elitism", "uniform"] = "elitism"
    mutation: Literal["priority", "reset"] = "priority"
    recovery: bool = True
    population: int = 50
    generations: int = 500
    mutation_rate: float = 0.1
    seed_mutation: float = 0.5
    segments: Literal["normalised", "totals"] = "normalised"
    targets: Literal["load-aware", "static"] = "load-aware"
    overload: float = 2.0
    archive: int = 200
    solutions: int = 200
    batching: Literal["jct", "memory", "single"] = "jct"
    mps_pcts: tuple[int, ...] = tuple(range(10, 101, 10))
    mps_goal: Literal["batch", "both", "queue", "own", "none"] = "batch"
    clocks: int = 12
    clock_scope: Literal["gpu", "plan", "none"] = "gpu"
    piecewise: bool = True
    merge: int = 100
    front: int = 100

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            require(name, getattr(self, name), getattr(self, name) in choices, "one of " + ", ".join(choices))
        for name, least in _LEAST.items():
            value = getattr(self, name)
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            good = (whole or (name == "overload" and isinstance(value, Real))) and value >= least
            require(name, value, good, f"a {'' if name == 'overload' else 'whole '}number of at least {least}")
        for name in ("mutation_rate", "seed_mutation"):
            require(name, getattr(self, name), 0 <= getattr(self, name) <= 1, "a chance from 0 to 1")
        pcts = self.mps_pcts
        good = bool(pcts) and list(pcts) == sorted(set(pcts)) and pcts[0] >= 1 and pcts[-1] == 100
        require("mps_pcts", pcts, good, "ascending percentages from 1 that end with 100")

    @classmethod
    def literal(cls, **changes: object) -> Self:
        """Return the settings that follow the paper's text wherever the defaults do not, with some changes."""
        unknown = sorted(set(changes) - {field.name for field in fields(cls)})
        require("settings", unknown, not unknown, "names of settings")
        return cls(**{**LITERAL, **changes})


_CHOICES = {name: get_args(kind) for name, kind in get_type_hints(Settings).items() if get_origin(kind) is Literal}
_LEAST = {
    "population": 2,
    "generations": 1,
    "archive": 2,
    "solutions": 2,
    "clocks": 1,
    "merge": 2,
    "front": 3,
    "overload": 0,
}
STAGE_2 = frozenset(
    ("solutions", "batching", "mps_pcts", "mps_goal", "clocks", "clock_scope", "piecewise", "merge", "front")
)
"""The settings that stage 1 does not read."""
DEFAULTS = Settings()
