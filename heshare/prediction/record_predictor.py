"""Base class of predictors that are trained on profiles: reference rows looked up, everything else predicted once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from heshare.arrays import FloatArray
from heshare.errors import InputError, NotProfiledError
from heshare.prediction.features import FeatureEncoder, ReferenceFeatures
from heshare.prediction.predictor import CoRuns, Predictor
from heshare.world.catalogue import INFERENCE
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

SetKey = tuple[int, tuple[int, ...]]
"""A clock (MHz) and the ascending ids of the residents."""
SetPrediction = tuple[list[float], float]
"""Seconds per iteration of each resident, in the order of the ids, and the GPU's power, W."""
PredictionCache = dict[Gpu, tuple[FeatureEncoder, dict[SetKey, SetPrediction]]]
"""The predictions made for each GPU, and the encoder that numbers the residents in them."""


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
        # With a shared cache, the sets that count among this predictor's calls.
        self._counted: dict[Gpu, set[SetKey]] | None = None if cache is None else {}
        self._other_sets: SetPredictor | None = None
        self._calls = 0
        self.derived: dict[object, Any] = {}

    @abstractmethod
    def _predict_sets(self, encoder: FeatureEncoder, keys: list[SetKey]) -> list[SetPrediction]:
        """Predict times and power of sets that are neither cached nor empty, all at once."""

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
        if not is_outside_profiles({id(resident): resident for residents in sets for resident in residents}.values()):
            return self._co_run(sets, gpu, sm_mhz)
        others = [row for row, residents in enumerate(sets) if is_outside_profiles(residents)]
        inside = sorted(set(range(len(sets))).difference(others))
        runs = self._co_run([sets[row] for row in inside], gpu, [sm_mhz[row] for row in inside]) if inside else None
        time_s, power_w = _spread(sets, [(inside, runs)])
        for row in others:
            times, power_w[row], rows = self._predict_other(gpu, sets[row], sm_mhz[row])
            time_s[row, : len(times)] = times
            self._calls += rows
        return CoRuns(time_s, power_w)

    def _predict_other(
        self, gpu: Gpu, residents: tuple[Resident, ...], sm_mhz: int | None
    ) -> tuple[list[float], float, int]:
        if self._other_sets is None and _SET_PREDICTORS:
            self._other_sets = _SET_PREDICTORS[0]()
        if self._other_sets is None:
            raise InputError(
                " beside ".join(map(str, residents)),
                "inference under MPS, which the profiles hold",
                "Load the predictor of other sets: import the package's plugins.",
                column="workload",
            )
        return self._other_sets.predict_set(gpu, residents, sm_mhz)

    def _co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """As `co_run`, for sets of inference tasks under MPS."""
        try:
            return self._profiled(sets, gpu, sm_mhz)
        except NotProfiledError:
            if self._fallback is None:
                raise
        covered = self._covered(gpu, {resident for residents in sets for resident in residents})
        inside = [row for row, residents in enumerate(sets) if covered and covered.issuperset(residents)]
        others = sorted(set(range(len(sets))).difference(inside))
        runs = self._profiled([sets[row] for row in inside], gpu, [sm_mhz[row] for row in inside]) if inside else None
        other_runs = self._fallback.co_run([sets[row] for row in others], gpu, [sm_mhz[row] for row in others])
        return CoRuns(*_spread(sets, [(inside, runs), (others, other_runs)]))

    def _covered(self, gpu: Gpu, residents: Iterable[Resident]) -> set[Resident]:
        """Return those of the residents that the profiles cover on this GPU."""
        covered = set()
        for resident in residents:
            with suppress(NotProfiledError):
                self._references.task(gpu.name, resident.workload)
                covered.add(resident)
        return covered

    def _profiled(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """As `_co_run`, for what the profiles cover."""
        if gpu not in self._cache:
            self._cache[gpu] = FeatureEncoder(gpu, self._references), {}
        encoder, cached = self._cache[gpu]
        set_ids = encoder.ids_of(sets)
        clocks = [encoder.clock(mhz) for mhz in sm_mhz]
        keys = [(clock, tuple(sorted(ids))) for clock, ids in zip(clocks, set_ids, strict=True)]
        if self._counted is not None:
            self._count(encoder, cached, self._counted.setdefault(gpu, set()), keys)
        cached.update(self._predict(encoder, [key for key in dict.fromkeys(keys) if key not in cached]))
        return _in_order(set_ids, [(key, cached[key]) for key in keys])

    def _count(
        self, encoder: FeatureEncoder, cached: dict[SetKey, SetPrediction], counted: set[SetKey], keys: list[SetKey]
    ) -> None:
        """Count the sets that this predictor predicts for the first time though another one has cached them."""
        new = set(keys).difference(counted)
        counted.update(new)
        self._calls += sum(len(key[1]) for key in new if key in cached and not encoder.is_reference(*key))

    def _predict(self, encoder: FeatureEncoder, keys: list[SetKey]) -> dict[SetKey, SetPrediction]:
        """Times and power of sets that are not cached."""
        predictions: dict[SetKey, SetPrediction] = {}
        new = []
        for clock, ids in keys:
            if not ids:
                predictions[clock, ids] = [], encoder.idle_w
            elif encoder.is_reference(clock, ids):
                time_s, power_w = encoder.alone(ids[0])
                predictions[clock, ids] = [time_s], power_w
            else:
                new.append((clock, ids))
        if new:
            predictions.update(zip(new, self._predict_sets(encoder, new), strict=True))
        return predictions


def _spread(
    sets: Sequence[tuple[Resident, ...]], parts: Iterable[tuple[list[int], CoRuns | None]]
) -> tuple[FloatArray, FloatArray]:
    """Return times (m, largest set) and power (m,) of m sets from those of some of them, each with its row numbers."""
    time_s, power_w = np.full((len(sets), max(map(len, sets))), np.nan), np.empty(len(sets))
    for rows, runs in parts:
        if runs is not None:
            time_s[rows, : runs.time_s.shape[1]], power_w[rows] = runs.time_s, runs.power_w
    return time_s, power_w


def _in_order(set_ids: list[list[int]], predictions: list[tuple[SetKey, SetPrediction]]) -> CoRuns:
    """Predictions for sorted sets, with times in the order of `set_ids`."""
    time_s = np.full((len(set_ids), max(map(len, set_ids), default=0)), np.nan)
    power_w = np.empty(len(set_ids))
    for row, (ids, ((_, ordered), (times, power_w[row]))) in enumerate(zip(set_ids, predictions, strict=True)):
        by_id = dict(zip(ordered, times, strict=True))
        time_s[row, : len(ids)] = [by_id[number] for number in ids]
    return CoRuns(time_s, power_w)
