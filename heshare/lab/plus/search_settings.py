"""Settings of the improved search: every limit as one named parameter with its default.

The search is an iterated local search (Lourenco, Martin and Stuetzle 2003) for each of W weights on time. A round goes
once along the weights. From the third round on, it starts P perturbations of the best assignment of each weight, so R
rounds make about

    C + 3 W + (R - 2) W (1 + P)

local searches, C of them in the first round, which finds the range of the weights. With s GPUs tried for each of n
tasks a pass over the relocations evaluates n s queues.

Example: the defaults on 8 GPUs, and the numbers of labels and partial plans that they keep on 8 and on 1,000 GPUs.

>>> settings = SearchSettings()
>>> settings.rounds, settings.weights, settings.perturbations, settings.perturbation_size
(8, 24, 6, 3)
>>> settings.front_limits(8), settings.front_limits(1000)
((64, 128), (16, 48))

Source: iterated local search, doi:10.1007/0-306-48056-5_11.
"""

from dataclasses import dataclass, fields

from heshare.shared.errors import require


@dataclass(frozen=True, slots=True)
class BatchChoices:
    """The clocks and MPS percentages that a batch may have, and its largest size.

    Attributes:
        width: the largest number of tasks of a batch.
        mps_variants: the largest number of vectors of MPS percentages of a set, 100 % for each member being one; with 1
            no task is limited.
        mps_width: sets of up to so many tasks may have other percentages than 100 %.
        clocks: the number of SM clocks, evenly spaced over each GPU's grid with both ends.
        mps_pcts: MPS percentages of sets of two.
        coarse_mps_pcts: MPS percentages of larger sets.

    Raises:
        InputError: a value is out of its range.
    """

    width: int = 3
    mps_variants: int = 4
    mps_width: int = 2
    clocks: int = 12
    mps_pcts: tuple[int, ...] = tuple(range(10, 101, 10))
    coarse_mps_pcts: tuple[int, ...] = (50, 100)

    def __post_init__(self) -> None:
        # A set's subsets are enumerated, so that tables grow with 2**width.
        limits = {"width": 8, "mps_variants": 1000, "mps_width": 8, "clocks": 1000}
        for name, most in limits.items():
            value = getattr(self, name)
            require(name, value, 1 <= value <= most, f"1 to {most}", "Correct the setting.")
        for name in ("mps_pcts", "coarse_mps_pcts"):
            levels = getattr(self, name)
            ascending = bool(levels) and list(levels) == sorted(set(levels)) and levels[0] >= 1 and levels[-1] == 100
            require(name, levels, ascending, "ascending percentages from 1 that end with 100", "Correct the setting.")


DEFAULT_CHOICES = BatchChoices()


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Limits of the improved search.

    Attributes:
        rounds: rounds along the weights, the first coarse one included.
        weights: weights on time between the ends of the front.
        coarse_weights: weights of the first round.
        perturbations: perturbations of the best assignment of every weight in each round.
        perturbation_size: tasks that a perturbation moves.
        exhaustive_gpus: on clusters of up to so many GPUs every GPU is tried for every task; on larger ones a sample.
        sampled_gpus: GPUs sampled for a task.
        passes: passes over all tasks with a sample.
        swap_tasks: task sets of up to so many tasks are searched by swaps too.
        labels: about how many partial plans of a queue are kept for its front.
        sum_points: about how many partial plans of several queues are kept for the front of a cluster.
        front_plans: the largest number of plans in the final front.
        choices: the clocks and MPS percentages that a batch may have.

    Raises:
        InputError: a value is out of its range.
    """

    rounds: int = 8
    weights: int = 24
    coarse_weights: int = 7
    perturbations: int = 6
    perturbation_size: int = 3
    exhaustive_gpus: int = 40
    sampled_gpus: int = 6
    passes: int = 2
    swap_tasks: int = 200
    labels: int = 64
    sum_points: int = 128
    front_plans: int = 100
    choices: BatchChoices = DEFAULT_CHOICES

    def front_limits(self, k: int) -> tuple[int, int]:
        """Return `labels` and `sum_points` for k GPUs: the more queues add up, the fewer points each one needs."""
        if k > self.exhaustive_gpus:
            return min(self.labels, 16), min(self.sum_points, 48)
        return self.labels, self.sum_points

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "choices":
                least, value = _LEAST.get(field.name, 1), getattr(self, field.name)
                require(field.name, value, value >= least, f"at least {least}", "Correct the setting.")


_LEAST = {
    "weights": 2,
    "coarse_weights": 2,
    "perturbations": 0,
    "exhaustive_gpus": 0,
    "swap_tasks": 0,
    "labels": 4,
    "sum_points": 4,
    "front_plans": 3,
}

DEFAULT_SETTINGS = SearchSettings()
