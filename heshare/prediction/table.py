"""Predictions as a table: asked of a predictor once, then looked up, to the bit the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations_with_replacement, product

import numpy as np

from heshare.errors import InputError
from heshare.prediction.memory import Answer, Key
from heshare.prediction.predictor import CoRuns, Predictor
from heshare.profiles.design import MPS_PCTS
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

LARGEST = 2_000_000
"""Rows that a table may have at most."""


class GpuTable:
    """Answers for one GPU, by clock and residents.

    Attributes:
        answers: times (s) of the residents, in the order of their ids, and power (W), by clock (MHz) and ascending ids.
            A scheduler that keeps its tasks' ids asks `table.answers[mhz, ids]`.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.answers: dict[Key, Answer] = {}
        self._ids: dict[Resident, int] = {}

    def ids(self, residents: Iterable[Resident]) -> tuple[int, ...]:
        """A small number for each different resident."""
        known = self._ids
        return tuple([known.setdefault(one, len(known)) for one in residents])

    def learn(self, sets: Sequence[tuple[Resident, ...]], clocks: Sequence[int], predictor: Predictor) -> None:
        """Ask the predictor what the table does not hold yet, in one go."""
        keys: dict[Key, tuple[Resident, ...]] = {}
        for members, mhz in zip(sets, clocks, strict=True):
            ids = self.ids(members)
            order = sorted(range(len(ids)), key=ids.__getitem__)
            key = (mhz, tuple([ids[at] for at in order]))
            if key not in self.answers:
                keys[key] = tuple([members[at] for at in order])
        found = predictor.co_run(list(keys.values()), self.gpu, [mhz for mhz, _ in keys])
        for (key, members), times, power_w in zip(
            keys.items(), found.time_s.tolist(), found.power_w.tolist(), strict=True
        ):
            self.answers[key] = times[: len(members)], power_w


class TablePredictor:
    """A predictor whose answers for a task set's workloads were worked out beforehand.

    Sets that the table does not hold are asked of the predictor behind it, once, and kept.

    Args:
        predictor: what answers; its own answers are passed on to the bit.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._tables: dict[Gpu, GpuTable] = {}

    @classmethod
    def build(
        cls,
        predictor: Predictor,
        workloads: Iterable[Workload],
        gpus: Iterable[Gpu],
        *,
        mps_pcts: Sequence[int] = MPS_PCTS,
        clocks_mhz: Sequence[int] | None = None,
        together: int = 1,
    ) -> TablePredictor:
        """Work out every set of up to `together` residents of a task set's distinct workloads, on each GPU.

        Args:
            predictor: what answers.
            workloads: the workloads of the task set; repeats count once.
            gpus: the types of GPU.
            mps_pcts: MPS percentages of each resident.
            clocks_mhz: clocks of each GPU, MHz; every clock of its grid unless given.
            together: residents of the largest set.

        Raises:
            InputError: more than `LARGEST` rows, or a workload, GPU or clock that the predictor does not cover.
        """
        made = cls(predictor)
        residents = [Resident(one, pct) for one, pct in product(sorted(set(workloads)), mps_pcts)]
        sets = [some for size in range(1, together + 1) for some in combinations_with_replacement(residents, size)]
        for gpu in dict.fromkeys(gpus):
            clocks = gpu.clocks_mhz if clocks_mhz is None else tuple(clocks_mhz)
            if (rows := len(sets) * len(clocks)) > LARGEST:
                raise InputError(
                    column="together",
                    found=f"{rows} sets on {gpu.name}",
                    expected=f"at most {LARGEST}",
                    action="Ask for fewer residents at once, percentages or clocks.",
                )
            asked = list(product(sets, clocks))
            made.on(gpu).learn([members for members, _ in asked], [mhz for _, mhz in asked], predictor)
        return made

    def on(self, gpu: Gpu) -> GpuTable:
        """The table of one GPU; empty where nothing was worked out for it."""
        return self._tables.setdefault(gpu, GpuTable(gpu))

    @property
    def rows(self) -> int:
        """Answers held."""
        return sum(len(table.answers) for table in self._tables.values())

    @property
    def calls(self) -> int:
        """Rows that the predictor behind the table has predicted."""
        return self._predictor.calls

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        """Each of m workloads alone on `gpu` at 100 %; `time_s` has shape (m, 1).

        Raises:
            InputError: the clock is off the grid, or the predictor does not cover the GPU or a workload.
        """
        return self.co_run([(Resident(workload),) for workload in workloads], gpu, [sm_mhz] * len(workloads))

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Look m sets of residents up, set i at clock `sm_mhz[i]` (MHz; None: the top clock).

        Raises:
            InputError: a clock is off the grid, or the predictor does not cover the GPU or a workload.
        """
        table = self.on(gpu)
        clocks = [gpu.max_mhz if mhz is None else mhz for mhz in sm_mhz]
        ids = [table.ids(members) for members in sets]
        orders = [sorted(range(len(one)), key=one.__getitem__) for one in ids]
        keys = [(mhz, tuple([one[at] for at in order])) for mhz, one, order in zip(clocks, ids, orders, strict=True)]
        if any(key not in table.answers for key in keys):
            table.learn(sets, clocks, self._predictor)
        time_s = np.full((len(sets), max(map(len, sets), default=0)), np.nan)
        power_w = np.empty(len(sets))
        for row, (key, order) in enumerate(zip(keys, orders, strict=True)):
            times, power_w[row] = table.answers[key]
            time_s[row, order] = times
        return CoRuns(time_s, power_w)
