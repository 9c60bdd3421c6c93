"""Base class of predictors that are trained on profiles: reference rows looked up, everything else predicted once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from heshare.prediction.features import FeatureEncoder, ReferenceFeatures
from heshare.prediction.predictor import CodedSets, CoRuns, Predictor
from heshare.shared import plugins
from heshare.shared.arrays import BoolArray, FloatArray, IntArray
from heshare.shared.caches.row_table import PredictedSets, sorted_sets
from heshare.shared.errors import InputError, NotProfiledError
from heshare.world.catalogue import INFERENCE
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

MOST_SETS = 4096
"""Sets that are predicted at once, so that memory does not grow with their number."""


class KnownSets(PredictedSets):
    """The sets that were predicted on one type of GPU: a clock (MHz) and the ids of the residents, by the encoder.

    `rows` are the rows that were predicted for each set, none for reference rows, shape (sets,).
    """

    def __init__(self, encoder: FeatureEncoder) -> None:
        super().__init__(heads=1)
        self.encoder, self.rows = encoder, np.zeros(0, dtype=np.int64)


PredictionCache = dict[Gpu, KnownSets]
"""The predictions made for each type of GPU."""


class SetPredictor(Protocol):
    """A predictor for sets of residents that profiles do not hold: training, and other ways of sharing than MPS."""

    def predict_set(
        self, gpu: Gpu, residents: tuple[Resident, ...], sm_mhz: int | None
    ) -> tuple[list[float], float, int]:
        """Return seconds per iteration of each resident, the GPU's power (W), and how many rows were computed."""
        ...


_SET_PREDICTORS: list[Callable[[], SetPredictor]] = []


def register_set_predictor(make: Callable[[], SetPredictor]) -> None:
    """Make `make` the function that gives each `RecordPredictor` its predictor for sets outside the profiles."""
    _SET_PREDICTORS[:] = [make]


def is_outside_profiles(residents: Iterable[Resident]) -> bool:
    """Return whether profiles hold nothing like these residents: some train, or do not share by MPS."""
    return any(resident.sharing != "mps" or resident.workload.phase != INFERENCE for resident in residents)


class RecordPredictor(Predictor, ABC):
    """A predictor that looks a workload alone up in its profiles and predicts the rest.

    A workload alone at 100 % and the top clock is its reference row. Every other set is predicted once and cached.

    Args:
        references: task features of the profiles.
        cache: predictions that predictors of the same profiles and model share; this predictor still counts the rows
            of a set that another one has predicted. A cache of its own unless given.
        fallback: predicts sets on GPUs and of workloads that the profiles do not cover; None refuses them.

    Attributes:
        derived: results that callers compute from this predictor's predictions and cache with it.
    """

    def __init__(
        self,
        references: ReferenceFeatures,
        cache: PredictionCache | None = None,
        fallback: Predictor | None = None,
    ) -> None:
        self._references = references
        self._fallback = fallback
        self._cache: PredictionCache = {} if cache is None else cache
        # The sets that count among this predictor's calls; in a shared cache there may be others.
        self._counted: dict[Gpu, BoolArray] = {}
        self._other_sets: SetPredictor | None = None
        self._calls = 0
        self.derived: dict[object, Any] = {}

    @abstractmethod
    def _predict_sets(self, encoder: FeatureEncoder, ids: IntArray, sm_mhz: IntArray) -> tuple[FloatArray, FloatArray]:
        """Predict times, (m, w), and power, (m,), of m sets that are neither cached nor empty, all at once.

        `ids` are those of the residents, -1 beyond a set's size, (m, w); `sm_mhz` has the clocks, (m,).
        """

    @property
    def calls(self) -> int:
        """Rows predicted so far; cached predictions and reference rows are not counted."""
        return self._calls + (0 if self._fallback is None else self._fallback.calls)

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict m sets of residents, set i at clock `sm_mhz[i]` (MHz; None: the top clock).

        Sets outside the profiles (training, time slices, MIG) are predicted by the registered `SetPredictor`.

        Raises:
            InputError: a clock is off the grid, or the profiles do not cover the GPU or a workload.
        """
        coded = CodedSets.of(sets)
        if is_outside_profiles(coded.residents):
            return self._co_run_outside(coded, gpu, sm_mhz)
        try:
            if gpu not in self._cache:
                self._cache[gpu] = KnownSets(FeatureEncoder(gpu, self._references))
            known = self._cache[gpu]
            ids = np.array([*known.encoder.ids(coded.residents), -1])[coded.members]
        except NotProfiledError:
            if self._fallback is None:
                raise
            return self._co_run_uncovered(coded, gpu, sm_mhz, self._fallback)
        clock_of = {mhz: known.encoder.clock(mhz) for mhz in set(sm_mhz)}
        clocks_mhz = np.array([clock_of[mhz] for mhz in sm_mhz], dtype=np.int64)
        keys, order = sorted_sets(clocks_mhz[:, None], ids)
        numbers = known.keys.numbers(keys)
        if known.predicted < len(known.keys):
            self._predict_new(known)
        self._count(gpu, known, numbers)
        return CoRuns(*known.predictions(numbers, order, np.nan))

    def _predict_new(self, known: KnownSets) -> None:
        # The sets that have a number but no prediction: nothing runs, or a reference row, or anything else.
        encoder, new = known.encoder, known.keys.since(known.predicted)
        sm_mhz, ids, sizes = new[:, 0], new[:, 1:], (new[:, 1:] >= 0).sum(axis=1)
        time_s, power_w = np.full(ids.shape, np.nan), np.full(len(new), encoder.idle_w)
        rows = sizes.copy()
        for row in np.flatnonzero((sizes == 1) & (sm_mhz == encoder.gpu.max_mhz)).tolist():
            if encoder.is_full(int(ids[row, 0])):
                time_s[row, 0], power_w[row] = encoder.alone(int(ids[row, 0]))
                rows[row] = 0
        others = np.argsort(rows, kind="stable")[np.count_nonzero(rows == 0) :]  # sets of one size need no padding
        for some in np.array_split(others, -(-len(others) // MOST_SETS)) if len(others) else ():
            width = int(sizes[some].max())
            time_s[some, :width], power_w[some] = self._predict_sets(encoder, ids[some, :width], sm_mhz[some])
        known.add(time_s, power_w)
        known.rows = np.concatenate([known.rows, rows])

    def _count(self, gpu: Gpu, known: KnownSets, numbers: IntArray) -> None:
        # This predictor counts a set when it asks for it first, whoever has cached it.
        counted = self._counted.get(gpu)
        if counted is None or len(counted) < known.predicted:
            before = np.zeros(0, dtype=bool) if counted is None else counted
            counted = self._counted[gpu] = np.pad(before, (0, 2 * known.predicted - len(before)))
        new = numbers[~counted[numbers]]
        if len(new):
            counted[new] = True
            self._calls += int(known.rows[np.unique(new)].sum())

    def _co_run_outside(self, sets: CodedSets, gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        outside = [row for row, residents in enumerate(sets) if is_outside_profiles(residents)]
        others = self._set_predictor(sets[outside[0]])
        runs = self._co_run_with(self, sets, gpu, sm_mhz, sorted(set(range(len(sets))).difference(outside)))
        for row in outside:
            times, runs.power_w[row], rows = others.predict_set(gpu, sets[row], sm_mhz[row])
            runs.time_s[row, : len(times)] = times
            self._calls += rows
        return runs

    def _set_predictor(self, residents: tuple[Resident, ...]) -> SetPredictor:
        if not _SET_PREDICTORS:
            plugins.load(plugins.DEVICE_MODELS, "sets")
        if self._other_sets is None and _SET_PREDICTORS:
            self._other_sets = _SET_PREDICTORS[0]()
        if self._other_sets is None:
            raise InputError(
                " beside ".join(map(str, residents)),
                "inference under MPS, which the profiles hold",
                "Install the plug-in that predicts other sets.",
                column="workload",
            )
        return self._other_sets

    def _co_run_uncovered(self, sets: CodedSets, gpu: Gpu, sm_mhz: Sequence[int | None], fallback: Predictor) -> CoRuns:
        covered = set()
        for resident in sets.residents:
            with suppress(NotProfiledError):
                self._references.task(gpu.name, resident.workload)
                covered.add(resident)
        inside = [row for row, residents in enumerate(sets) if covered and covered.issuperset(residents)]
        others = sorted(set(range(len(sets))).difference(inside))
        runs = self._co_run_with(self, sets, gpu, sm_mhz, inside)
        other_runs = self._co_run_with(fallback, sets, gpu, sm_mhz, others)
        runs.time_s[others], runs.power_w[others] = other_runs.time_s[others], other_runs.power_w[others]
        return runs

    @staticmethod
    def _co_run_with(
        predictor: Predictor, sets: CodedSets, gpu: Gpu, sm_mhz: Sequence[int | None], rows: list[int]
    ) -> CoRuns:
        # Predictions for some of the sets, in arrays for all of them.
        time_s, power_w = np.full((len(sets), max(map(len, sets))), np.nan), np.empty(len(sets))
        if rows:
            runs = predictor.co_run([sets[row] for row in rows], gpu, [sm_mhz[row] for row in rows])
            time_s[rows, : runs.time_s.shape[1]], power_w[rows] = runs.time_s, runs.power_w
        return CoRuns(time_s, power_w)
