"""Every choice that the paper leaves open, as one named parameter with its default."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, Self

from heshare.errors import InputError


@dataclass(frozen=True, slots=True)
class Settings:
    """How HeShare plans. The defaults are the reading that works; `literal()` is the paper's word.

    Attributes:
        initialisation: `rank` is multi-objective initialisation, `random` puts every task anywhere it fits.
        crossover: `elitism` is elitism selection; `uniform` takes each task's GPU from either parent by chance.
        mutation: `priority` is priority mutation; `reset` sends a task anywhere it fits by chance.
        recovery: whether task recovery follows a migration; only `priority` mutation has it.
        population: individuals of the genetic algorithm (the paper states 50 for the algorithms it compares with).
        generations: generations, the initial population being the first; 50 x 500 is 25,000 evaluations.
        mutation_rate: chance that a task of an offspring migrates; 1.0 reads "for each task" literally.
        seed_mutation: chance that a task of an initial individual leaves its best-ranked GPU, drawn for each
            individual between 0 and this; 0 leaves only the random choice between equal ranks.
        segments: what a GPU's subset of tasks is compared by in crossover: `normalised` by the least energy and
            time that its tasks need anywhere, or `totals`, which favour the parent that left the GPU empty.
        targets: where a task migrates to: `load-aware` weighs the queues of the GPUs, `static` takes the GPU that
            is best for the task alone.
        overload: task recovery begins when a GPU's busy time passes this many times its share of the work.
        archive: largest number of non-dominated schemes that stage 1 keeps.
        solutions: largest number of stage 1 schemes that stage 2 configures; by default all that the archive holds.
        batching: where queues are split: `jct` weighs each task (Algorithm 1, line 5), `memory` splits only where
            memory and the MPS clients end, `single` makes every task a batch, so that nothing shares.
        mps_pcts: MPS percentages to choose from.
        mps_goal: what a percentage minimises: the sum of the JCTs of the `batch`, of the whole `queue` (the batch
            and those who wait for it), or the task's `own` JCT (Algorithm 1, line 8, literally). `none`: all get 100.
        clocks: SM clocks tried for each GPU, evenly spaced over its grid with both ends.
        clock_scope: `gpu` chooses a clock for each GPU, `plan` the same step of the grid for all (line 12 literally),
            `none` leaves every card to itself.
        piecewise: whether the energy and JCT of a plan count that whoever is left of a batch speeds up when a task
            ends, as on a device. False is Eq. 13 literally: everybody runs as if all stayed until the end. Batches
            and MPS percentages are chosen by Eq. 13 in either case: the split rule weighs only the next task, and
            without Eq. 13's penalty for staying it lets batches grow too large.
        merge: largest number of partial plans kept while the clocks of the GPUs are combined.
        front: largest number of plans in the final front.

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
    mps_goal: Literal["batch", "queue", "own", "none"] = "batch"
    clocks: int = 12
    clock_scope: Literal["gpu", "plan", "none"] = "gpu"
    piecewise: bool = True
    merge: int = 100
    front: int = 100

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            _check(name, getattr(self, name), getattr(self, name) in known, "one of " + ", ".join(known))
        for name, least in _LEAST.items():
            _check(name, getattr(self, name), getattr(self, name) >= least, f"at least {least}")
        for name in ("mutation_rate", "seed_mutation"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) <= 1, "a chance from 0 to 1")
        shares = self.mps_pcts
        good = bool(shares) and list(shares) == sorted(set(shares)) and shares[0] >= 1 and shares[-1] == 100
        _check("mps_pcts", shares, good, "ascending percentages from 1 that end with 100")

    @classmethod
    def literal(cls, **changes: object) -> Self:
        """The paper's words taken literally, wherever the default reads them otherwise."""
        words = cls(
            mutation_rate=1.0,
            seed_mutation=0.0,
            segments="totals",
            targets="static",
            mps_goal="own",
            clock_scope="plan",
            piecewise=False,
        )
        unknown = sorted(set(changes) - {field.name for field in fields(cls)})
        _check("settings", unknown, not unknown, "names of settings")
        return replace(words, **changes)  # type: ignore[arg-type]


_CHOICES = {
    "initialisation": ("rank", "random"),
    "crossover": ("elitism", "uniform"),
    "mutation": ("priority", "reset"),
    "batching": ("jct", "memory", "single"),
    "segments": ("normalised", "totals"),
    "targets": ("load-aware", "static"),
    "mps_goal": ("batch", "queue", "own", "none"),
    "clock_scope": ("gpu", "plan", "none"),
}
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


def _check(column: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise InputError(column=column, found=repr(value), expected=expected, action="Correct the setting.")
