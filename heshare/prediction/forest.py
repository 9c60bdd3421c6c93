"""The paper's predictor (Section III-A): one random forest for time under sharing and for the GPU's power."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import fsum

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor

from heshare import files
from heshare.prediction import features as table2
from heshare.prediction.features import Encoder, References, is_reference, pad
from heshare.prediction.predictor import CoRuns, FloatArray, IntArray
from heshare.prediction.targets import Targets
from heshare.profiles import store
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

TRAIN_PART = 0.75
"""Part of the samples that trains (Section III-A: 75 % training, 25 % validation)."""
FOREST: dict[str, object] = {"n_estimators": 100, "max_features": 1.0, "min_samples_leaf": 1}
"""The forest's settings, chosen by cross-validation inside the training part (`heshare.prediction.compare`)."""


class Forest:
    """A random forest with two outputs, time and power.

    Args:
        seed: of the bootstrap and of the features tried at each split.
        target: how the outputs are written for learning, see `Targets`.
        settings: of `RandomForestRegressor`; `FOREST` by default.
    """

    def __init__(self, *, seed: int, target: str = "load", settings: dict[str, object] | None = None) -> None:
        self._targets = Targets(target)
        self._model = RandomForestRegressor(random_state=seed, n_jobs=1, **(settings or FOREST))
        self._scale = np.ones(2)

    def fit(self, features: FloatArray, time_s: FloatArray, power_w: FloatArray) -> Forest:
        """Learn from features (rows, 14), times (s) and powers (W), each (rows,); returns itself."""
        learned = self._targets.fit(features, time_s, power_w)
        self._scale = learned.std(axis=0) + 1e-12
        # Ten digits are kept, since a tree can turn a last bit that another processor computes into another split.
        self._model.fit(features.astype(np.float32), (learned / self._scale).round(10))
        return self

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Times (s) and powers (W), each (rows,), from features (rows, 14).

        The trees are asked one after the other in a fixed order, so the sum has the same bits in every process.
        """
        rows = np.ascontiguousarray(features, dtype=np.float32)
        total = np.zeros((len(rows), 2))
        if len(rows):
            for tree in self._model.estimators_:
                total += tree.tree_.predict(rows).reshape(len(rows), 2)
        return self._targets.decode(features, total / len(self._model.estimators_) * self._scale)


_Key = tuple[int, tuple[int, ...]]
_Answer = tuple[list[float], float]


class ForestPredictor:
    """What every scheduler believes: Table II's features and one random forest.

    A workload alone at 100 % and the top clock is answered by its reference row. Sets that were asked before are
    answered from memory. The power of a set is the mean over its members of the power that the forest predicts when
    that member comes last.

    Args:
        forest: a fitted forest.
        references: task features of the record.
    """

    def __init__(self, forest: Forest, references: References) -> None:
        self._forest = forest
        self._references = references
        self._memories: dict[Gpu, tuple[Encoder, dict[_Key, _Answer]]] = {}
        self._calls = 0

    @classmethod
    def fit(cls, profiles: pd.DataFrame, *, seed: int = 0, target: str = "load") -> ForestPredictor:
        """Train on 75 % of a profile table's samples.

        Args:
            profiles: a table of the profile schema, with its reference rows.
            seed: of the split and of the forest.
            target: how the outputs are written for learning, see `Targets`.

        Raises:
            InputError: the reference row of a workload is missing.
        """
        return cls(*train(profiles, seed=seed, target=target))

    @property
    def calls(self) -> int:
        """Rows that the forest has predicted so far; answers from memory or from the record are not counted."""
        return self._calls

    def solo(self, workloads: Sequence[Workload], gpu: Gpu, sm_mhz: int | None = None) -> CoRuns:
        """Each of m workloads alone on `gpu` at 100 %; `time_s` has shape (m, 1).

        Raises:
            InputError: the clock is off the grid, or the record does not cover the GPU or a workload.
        """
        return self.co_run([(Resident(workload),) for workload in workloads], gpu, [sm_mhz] * len(workloads))

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict m sets of residents, set i at clock `sm_mhz[i]` (MHz; None: the top clock).

        Raises:
            InputError: a clock is off the grid, or the record does not cover the GPU or a workload.
        """
        if gpu not in self._memories:
            self._memories[gpu] = Encoder(gpu, self._references), {}
        encoder, known = self._memories[gpu]
        asked = [encoder.ids(residents) for residents in sets]
        clocks = [encoder.clock(mhz) for mhz in sm_mhz]
        keys = [(clock, tuple(sorted(ids))) for clock, ids in zip(clocks, asked, strict=True)]
        known.update(self._predict(encoder, [key for key in dict.fromkeys(keys) if key not in known]))
        return _arrange(asked, [(key, known[key]) for key in keys])

    def _predict(self, encoder: Encoder, keys: list[_Key]) -> dict[_Key, _Answer]:
        """Times and power of sets that were not asked before, all in one go."""
        answers: dict[_Key, _Answer] = {}
        unseen = []
        for clock, ids in keys:
            if not ids:
                answers[clock, ids] = [], encoder.idle_w
            elif len(ids) == 1 and clock == encoder.gpu.max_mhz and encoder.is_full(ids[0]):
                time_s, power_w = encoder.alone(ids[0])
                answers[clock, ids] = [time_s], power_w
            else:
                unseen.append((clock, ids))
        if unseen:
            answers.update(zip(unseen, self._ask_forest(encoder, unseen), strict=True))
        return answers

    def _ask_forest(self, encoder: Encoder, keys: list[_Key]) -> list[_Answer]:
        rows = encoder.rows(pad([ids for _, ids in keys]), np.array([clock for clock, _ in keys]))
        time_s, power_w = self._forest.predict(rows[~np.isnan(rows[..., 0])])
        self._calls += len(time_s)
        times, powers = time_s.tolist(), power_w.tolist()
        ends = np.cumsum([len(ids) for _, ids in keys]).tolist()
        # fsum is exact, so the order in which a process first met the tasks cannot change a bit.
        return [
            (times[start:end], fsum(powers[start:end]) / (end - start))
            for start, end in zip([0, *ends], ends, strict=False)
        ]


def _arrange(asked: list[list[int]], answers: list[tuple[_Key, _Answer]]) -> CoRuns:
    """Answers for sorted sets, put back in the order of asking."""
    time_s = np.full((len(asked), max(map(len, asked), default=0)), np.nan)
    power_w = np.empty(len(asked))
    for row, (ids, ((_, ordered), (times, power_w[row]))) in enumerate(zip(asked, answers, strict=True)):
        by_id = dict(zip(ordered, times, strict=True))
        time_s[row, : len(ids)] = [by_id[one] for one in ids]
    return CoRuns(time_s, power_w)


def train(profiles: pd.DataFrame, *, seed: int, target: str = "load") -> tuple[Forest, References]:
    """A forest fitted to 75 % of a profile table's samples, and the record's task features."""
    references = References(profiles)
    samples = profiles[~is_reference(profiles)].reset_index(drop=True)
    rows = samples.iloc[split_rows(len(samples), rng=np.random.default_rng(seed))[0]]
    forest = Forest(seed=seed, target=target).fit(
        table2.of_profiles(rows, references), rows["time_s"].to_numpy(), rows["power_w"].to_numpy()
    )
    return forest, references


def split_rows(rows: int, *, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Row numbers that train (75 %) and that validate (25 %), both ascending (Section III-A)."""
    order = rng.permutation(rows)
    cut = round(TRAIN_PART * rows)
    return np.sort(order[:cut]), np.sort(order[cut:])


@cache
def _trained(seed: int) -> tuple[Forest, References]:
    return train(store.read(files.data("profiles", "emulated")), seed=seed)


def load_predictor(seed: int = 0) -> ForestPredictor:
    """A predictor of the committed profiles of T4, V100 and A100; its forest is trained once in a process.

    Raises:
        InputError: a profile is missing or damaged.
    """
    return ForestPredictor(*_trained(seed))
