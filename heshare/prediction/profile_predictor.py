"""The schedulers' predictor: profiles of each workload alone, and a model that is trained on them (Section III-A)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import fsum

import numpy as np

from heshare.prediction.features import FeatureEncoder, ReferenceFeatures
from heshare.prediction.prediction_cache import PredictionCache
from heshare.prediction.predictor import CodedSets, CoRuns, Predictor
from heshare.prediction.set_table import SetTable
from heshare.prediction.trees import SetModel
from heshare.shared.arrays import FloatArray, IntArray
from heshare.world.catalogue import INFERENCE
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

MOST_SETS = 4096
"""Sets that are predicted at once, so that memory does not grow with their number."""


@dataclass(frozen=True)
class Trained:
    """A model with the profiles that it is trained on, and all that it has predicted so far.

    Attributes:
        model: predicts times and power from features.
        references: the task features of the profiles.
        known: the predictions by type of GPU, which all predictors of this model share.
    """

    model: SetModel
    references: ReferenceFeatures
    known: dict[Gpu, PredictionCache] = field(default_factory=dict)

    def sets_on(self, gpu: Gpu) -> PredictionCache:
        """Return the cached predictions for a GPU, or an `InputError` where the profiles do not hold it."""
        if gpu not in self.known:
            self.known[gpu] = PredictionCache(FeatureEncoder(gpu, self.references))
        return self.known[gpu]


class ProfilePredictor(Predictor):
    """Predicts time and power by Table II's features and a trained model (Eq. 5); what is in the profiles it looks up.

    A workload alone at 100 % and the top clock is its reference row. Every other set is predicted once and cached with
    the model. The power of a set is the mean over its members of the power that the model predicts with that member as
    the task and the others as its co-runners.

    Training, and other ways of sharing than MPS, which no profile holds, are predicted by `SetTable`.

    Args:
        load: returns the trained model; called when something is first predicted, since not every policy predicts.

    Attributes:
        calls: rows predicted so far. A row counts when this predictor first asks for it, whoever has cached it;
            reference rows do not count.
    """

    def __init__(self, load: Callable[[], Trained]) -> None:
        self._load = load
        self._counted: dict[Gpu, set[int]] = {}
        self._others = SetTable()

    @cached_property
    def _trained(self) -> Trained:
        return self._load()

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict m sets of residents, set i at clock `sm_mhz[i]` (MHz; None: the top clock).

        Raises:
            InputError: a clock is off the grid, or the profiles do not cover the GPU or a workload.
        """
        coded = CodedSets.of(sets)
        others = [_is_other(resident) for resident in coded.residents]
        if not any(others):
            return self._co_run_profiled(coded, gpu, sm_mhz)

        other = np.array([*others, False])[coded.members].any(axis=1)
        time_s = np.full(coded.members.shape, np.nan)
        power_w = np.empty(len(coded))
        rows = np.flatnonzero(~other).tolist()
        if rows:
            runs = self._co_run_profiled(CodedSets.of([coded[row] for row in rows]), gpu, [sm_mhz[row] for row in rows])
            time_s[rows, : runs.time_s.shape[1]] = runs.time_s
            power_w[rows] = runs.power_w

        before = self._others.rows
        for row in np.flatnonzero(other).tolist():
            residents = coded[row]
            time_s[row, : len(residents)], power_w[row] = self._others.predict(gpu, residents, sm_mhz[row])
        self.calls += self._others.rows - before
        return CoRuns(time_s, power_w)

    def is_trained_on(self, gpu: Gpu) -> bool:
        """Return whether the profiles hold runs on this GPU."""
        return gpu.name in self._trained.references.idle_w

    def _co_run_profiled(self, sets: CodedSets, gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        known = self._trained.sets_on(gpu)
        clock_of = {mhz: known.encoder.clock(mhz) for mhz in set(sm_mhz)}
        clocks_mhz = np.array([clock_of[mhz] for mhz in sm_mhz], dtype=np.int64)
        ids = np.array([*known.encoder.ids(sets.residents), -1], dtype=np.int64)[sets.members]

        # The order in a set does not matter: its members are sorted, and their times put back in the order given.
        order = np.argsort(-ids, axis=1, kind="stable")
        each = np.arange(len(ids))[:, None]
        members = ids[each, order]

        keys = known.keys(clocks_mhz, members)
        new = {key: row for row, key in enumerate(keys) if key not in known.number}
        if new:
            rows = np.fromiter(new.values(), dtype=np.int64)
            self._predict(known, list(new), members[rows], clocks_mhz[rows])
        numbers = np.array([known.number[key] for key in keys], dtype=np.int64)

        counted = self._counted.setdefault(gpu, set())
        first_asked = set(numbers.tolist()).difference(counted)
        if first_asked:
            self.calls += known.rows(np.array(list(first_asked)))
            counted |= first_asked

        time_s = np.empty(ids.shape)
        time_s[each, order] = known.times_s(numbers, members)
        return CoRuns(time_s, known.power_w(numbers))

    def _predict(self, known: PredictionCache, keys: list[bytes], members: IntArray, sm_mhz: IntArray) -> None:
        # Add new sets to those known: nothing runs, or a reference row, or anything else.
        encoder = known.encoder
        sizes = (members >= 0).sum(axis=1)
        time_s = np.full(members.shape, np.nan)
        power_w = np.full(len(members), encoder.idle_w)

        rows = sizes.copy()
        for row in np.flatnonzero((sizes == 1) & (sm_mhz == encoder.gpu.max_mhz)).tolist():
            if encoder.is_full(int(members[row, 0])):
                time_s[row, 0], power_w[row] = encoder.alone(int(members[row, 0]))
                rows[row] = 0

        # Sets are sorted by size, so that few need padding.
        others = np.argsort(rows, kind="stable")[np.count_nonzero(rows == 0) :]
        for begin in range(0, len(others), MOST_SETS):
            some = others[begin : begin + MOST_SETS]
            width = int(sizes[some].max())
            time_s[some, :width], power_w[some] = self._predict_sets(encoder, members[some, :width], sm_mhz[some])
        known.add(keys, members, time_s, power_w, rows)

    def _predict_sets(self, encoder: FeatureEncoder, ids: IntArray, sm_mhz: IntArray) -> tuple[FloatArray, FloatArray]:
        # Times, (m, w), and power, (m,), of m sets of ids, -1 beyond a set's size, (m, w), at clocks, MHz, (m,).
        present = ids >= 0
        features = encoder.rows(ids, sm_mhz)[present]
        time_s = np.full(ids.shape, np.nan)
        time_s[present], powers = self._trained.model.predict(features)

        # fsum is exact, so the order in which a process first met the tasks cannot change a bit.
        ends = np.cumsum(present.sum(axis=1)).tolist()
        listed = powers.tolist()
        power_w = [fsum(listed[begin:end]) / (end - begin) for begin, end in zip([0, *ends], ends, strict=False)]
        return time_s, np.array(power_w)


def _is_other(resident: Resident) -> bool:
    # Whether profiles hold nothing like this resident.
    return resident.sharing != "mps" or resident.workload.phase != INFERENCE
