"""Predictors that answer from a record: what they share, whatever it is that they learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from heshare.prediction.apart import SetTable, beyond
from heshare.prediction.features import Encoder, References
from heshare.prediction.predictor import CoRuns
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

Key = tuple[int, tuple[int, ...]]
"""A clock (MHz) and the ascending ids of the residents."""
Answer = tuple[list[float], float]
"""Seconds per iteration of each resident, in the order of the ids, and the GPU's power, W."""
Memories = dict[Gpu, tuple[Encoder, dict[Key, Answer]]]
"""The answers known for each GPU, and the numbers of the residents in them."""


class RecordPredictor(ABC):
    """A predictor that looks a workload alone up in the record and learns the rest.

    A workload alone at 100 % and the top clock is answered by its reference row. Sets that were asked before are
    answered from memory.

    Args:
        references: task features of the record.
        memories: answers that predictors of the same record and model share; what another one was asked is still
            counted among this one's calls. Its own unless given.

    Attributes:
        notes: what others concluded from this predictor's answers and keep with it, by what it is about.
    """

    def __init__(self, references: References, memories: Memories | None = None) -> None:
        self._references = references
        self._memories: Memories = {} if memories is None else memories
        self._asked: dict[Gpu, set[Key]] | None = None if memories is None else {}
        self._sets = SetTable()
        self._calls = 0
        self.notes: dict[object, Any] = {}

    @abstractmethod
    def _ask(self, encoder: Encoder, keys: list[Key]) -> list[Answer]:
        """Times and power of sets that were not asked before, none of them empty, all in one go."""

    @property
    def calls(self) -> int:
        """Rows that were predicted so far; answers from memory or from the record are not counted."""
        return self._calls

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        """Each of m workloads alone on `gpu` at 100 %; `time_s` has shape (m, 1).

        Raises:
            InputError: the clock is off the grid, or the record does not cover the GPU or a workload.
        """
        return self.co_run([(Resident(workload),) for workload in workloads], gpu, [sm_mhz] * len(workloads))

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict m sets of residents, set i at clock `sm_mhz[i]` (MHz; None: the top clock).

        Sets beyond the profiles (training, time slices, MIG) are answered by `heshare.prediction.apart`.

        Raises:
            InputError: a clock is off the grid, or the record does not cover the GPU or a workload.
        """
        if not beyond({id(one): one for residents in sets for one in residents}.values()):
            return self._co_run(sets, gpu, sm_mhz)
        others = [row for row, residents in enumerate(sets) if beyond(residents)]
        inside = sorted(set(range(len(sets))).difference(others))
        time_s, power_w = np.full((len(sets), max(map(len, sets))), np.nan), np.empty(len(sets))
        if inside:
            found = self._co_run([sets[row] for row in inside], gpu, [sm_mhz[row] for row in inside])
            time_s[inside, : found.time_s.shape[1]], power_w[inside] = found.time_s, found.power_w
        for row in others:
            times, power_w[row], rows = self._sets.ask(gpu, sets[row], sm_mhz[row])
            time_s[row, : len(times)] = times
            self._calls += rows
        return CoRuns(time_s, power_w)

    def _co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """As `co_run`, for sets that the profiles can answer."""
        if gpu not in self._memories:
            self._memories[gpu] = Encoder(gpu, self._references), {}
        encoder, known = self._memories[gpu]
        asked = encoder.ids_of(sets)
        clocks = [encoder.clock(mhz) for mhz in sm_mhz]
        keys = [(clock, tuple(sorted(ids))) for clock, ids in zip(clocks, asked, strict=True)]
        if self._asked is not None:
            self._count(encoder, known, self._asked.setdefault(gpu, set()), keys)
        known.update(self._predict(encoder, [key for key in dict.fromkeys(keys) if key not in known]))
        return _arrange(asked, [(key, known[key]) for key in keys])

    def _count(self, encoder: Encoder, known: dict[Key, Answer], asked: set[Key], keys: list[Key]) -> None:
        """Count what this predictor is asked for the first time though another one knows the answer."""
        new = set(keys).difference(asked)
        asked.update(new)
        self._calls += sum(len(key[1]) for key in new if key in known and not _recorded(encoder, key))

    def _predict(self, encoder: Encoder, keys: list[Key]) -> dict[Key, Answer]:
        """Times and power of sets that were not asked before, all in one go."""
        answers: dict[Key, Answer] = {}
        unseen = []
        for clock, ids in keys:
            if not ids:
                answers[clock, ids] = [], encoder.idle_w
            elif _recorded(encoder, (clock, ids)):
                time_s, power_w = encoder.alone(ids[0])
                answers[clock, ids] = [time_s], power_w
            else:
                unseen.append((clock, ids))
        if unseen:
            answers.update(zip(unseen, self._ask(encoder, unseen), strict=True))
        return answers


def _recorded(encoder: Encoder, key: Key) -> bool:
    """Whether the record itself answers: a task alone at 100 % and the top clock."""
    clock, ids = key
    return len(ids) == 1 and clock == encoder.gpu.max_mhz and encoder.is_full(ids[0])


def _arrange(asked: list[list[int]], answers: list[tuple[Key, Answer]]) -> CoRuns:
    """Answers for sorted sets, put back in the order of asking."""
    time_s = np.full((len(asked), max(map(len, asked), default=0)), np.nan)
    power_w = np.empty(len(asked))
    for row, (ids, ((_, ordered), (times, power_w[row]))) in enumerate(zip(asked, answers, strict=True)):
        by_id = dict(zip(ordered, times, strict=True))
        time_s[row, : len(ids)] = [by_id[one] for one in ids]
    return CoRuns(time_s, power_w)
