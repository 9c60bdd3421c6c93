"""Predictors: times under sharing and GPU power, as every planning policy uses them (Section III-A)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heshare.shared.arrays import FloatArray, IntArray
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

CODES = 128
"""More than any MPS percentage: a resident's code is the number of its workload times this plus its percentage."""


@dataclass(frozen=True, slots=True)
class CoRuns:
    """Predictions for m sets of tasks that share one GPU.

    Attributes:
        time_s: seconds per iteration of each resident, shape (m, largest set), NaN beyond a set's size.
        power_w: the GPU's power while the whole set runs, W, shape (m,).
    """

    time_s: FloatArray
    power_w: FloatArray


class CodedSets(Sequence[tuple[Resident, ...]]):
    """Sets of residents as an array, which a predictor can read faster than tuples.

    `residents` has those of all sets, each once, `members` the places in it of each set's members, -1 beyond its size,
    shape (m, w).
    """

    def __init__(self, residents: Sequence[Resident], members: IntArray) -> None:
        self.residents = residents
        self.members = members

    @classmethod
    def of(cls, sets: Sequence[tuple[Resident, ...]]) -> "CodedSets":
        """Return sets in this form; an object that is in several of them is looked up once."""
        if isinstance(sets, CodedSets):
            return sets
        kept = {id(resident): resident for residents in sets for resident in residents}
        places = {key: place for place, key in enumerate(kept)}
        width = max(map(len, sets), default=0)
        rows = [[*[places[id(resident)] for resident in each], *[-1] * (width - len(each))] for each in sets]
        return cls(list(kept.values()), np.array(rows, dtype=np.int64).reshape(len(sets), width))

    @classmethod
    def of_codes(cls, codes: IntArray, workloads: Sequence[Workload]) -> "CodedSets":
        """Return the sets of residents with these codes, workload times `CODES` plus MPS percentage, shape (m, w).

        Codes are -1 beyond a set's size.
        """
        distinct, members = np.unique(codes, return_inverse=True)
        empty = int(distinct[0] < 0)
        residents = [Resident(workloads[code // CODES], code % CODES) for code in distinct[empty:].tolist()]
        return cls(residents, members.reshape(codes.shape) - empty)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[tuple[Resident, ...]]:
        return (self._set(row) for row in self.members.tolist())

    def __getitem__(self, row: Any) -> Any:
        return self._set(self.members[row].tolist())

    def _set(self, members: list[int]) -> tuple[Resident, ...]:
        return tuple([self.residents[place] for place in members if place >= 0])


class Predictor(ABC):
    """Predicts time under sharing and the GPU's power. Every policy that predicts uses the same one.

    Attributes:
        calls: rows predicted so far, reported with every result; `co_run` counts them, or nothing does.
    """

    calls: int = 0

    @abstractmethod
    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict m sets of residents, set i at clock `sm_mhz[i]` (MHz; None: the GPU's default).

        Raises:
            InputError: a clock is off the grid, or the predictor does not know the GPU or a workload.
        """

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        """Predict each of m workloads alone on `gpu` at 100 %, as `co_run`; `time_s` has shape (m, 1)."""
        return self.co_run([(Resident(workload),) for workload in workloads], gpu, [sm_mhz] * len(workloads))

    def is_trained_on(self, gpu: Gpu) -> bool:
        """Return whether runs on this GPU were among the training data; otherwise predictions for it extrapolate."""
        return True
