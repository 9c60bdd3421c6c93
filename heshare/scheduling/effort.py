"""How hard the improved scheduler searches: every limit as one named parameter with its default."""

from __future__ import annotations

from dataclasses import dataclass, fields

from heshare.errors import InputError
from heshare.scheduling.costs import DEFAULT as FREEDOM
from heshare.scheduling.costs import Freedom


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of the improved search.

    Attributes:
        rounds: ways along the weights, the first coarse one included.
        weights: weights on time between the ends of the front.
        coarse: weights of the first round.
        kicks: kicks of every weight in each round.
        kick: tasks that a kick moves.
        all_gpus: on clusters of up to so many GPUs every GPU is tried for every task; on larger ones a sample.
        targets: GPUs sampled for a task.
        sweeps: samples for each local search.
        passes: times that all tasks are tried on one sample.
        swaps: task sets of up to so many tasks are searched by exchanges too.
        undivided: task sets of up to so many tasks are searched as a whole; larger ones in blocks of the cluster.
        block: GPUs of a block, about; clusters of fewer than two blocks are searched as a whole.
        labels: about how many partial plans of a queue are kept for its front.
        merge: about how many partial plans of some queues are kept for the front of a cluster.
        front: largest number of plans in the final front.
        freedom: what a batch may choose from.

    Raises:
        InputError: a value is out of its range.
    """

    rounds: int = 8
    weights: int = 24
    coarse: int = 7
    kicks: int = 2
    kick: int = 4
    all_gpus: int = 40
    targets: int = 6
    sweeps: int = 1
    passes: int = 2
    swaps: int = 200
    undivided: int = 300
    block: int = 8
    labels: int = 64
    merge: int = 128
    front: int = 100
    freedom: Freedom = FREEDOM

    def limits(self, k: int) -> tuple[int, int]:
        """Labels and partial plans to keep on k GPUs: the more GPUs add up, the fewer points each has to bring."""
        few = k > self.all_gpus
        return (min(self.labels, 16), min(self.merge, 48)) if few else (self.labels, self.merge)

    def __post_init__(self) -> None:
        for field in fields(self):
            least = _LEAST.get(field.name, 1)
            value = getattr(self, field.name)
            if field.name != "freedom" and value < least:
                raise InputError(
                    column=field.name, found=repr(value), expected=f"at least {least}", action="Correct the setting."
                )


_LEAST = {
    "weights": 2,
    "coarse": 2,
    "kicks": 0,
    "all_gpus": 0,
    "swaps": 0,
    "undivided": 0,
    "labels": 4,
    "merge": 4,
    "front": 3,
}

DEFAULT = Effort()
