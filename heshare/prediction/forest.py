"""The paper's predictor (Section III-A): one random forest for time under sharing and for the GPU's power."""

from __future__ import annotations

from functools import cache
from math import fsum

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor

from heshare import files
from heshare.errors import InputError
from heshare.prediction import features as table2
from heshare.prediction.believing import PhysicsPredictor
from heshare.prediction.features import Encoder, References, is_reference, pad
from heshare.prediction.memory import Answer, Key, Memories, RecordPredictor
from heshare.prediction.predictor import FloatArray, Predictor
from heshare.prediction.splits import split_rows as split_rows
from heshare.prediction.targets import Targets
from heshare.profiles import store

KINDS = ("paper", "physics")
"""Predictors that can be chosen; the first is the paper's, and the default."""
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


class ForestPredictor(RecordPredictor):
    """What every scheduler believes: Table II's features and one random forest.

    A workload alone at 100 % and the top clock is answered by its reference row. Sets that were asked before are
    answered from memory. The power of a set is the mean over its members of the power that the forest predicts when
    that member comes last.

    Args:
        forest: a fitted forest.
        references: task features of the record.
        memories: see `RecordPredictor`.
    """

    def __init__(self, forest: Forest, references: References, memories: Memories | None = None) -> None:
        super().__init__(references, memories)
        self._forest = forest

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

    def _ask(self, encoder: Encoder, keys: list[Key]) -> list[Answer]:
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


def train(profiles: pd.DataFrame, *, seed: int, target: str = "load") -> tuple[Forest, References]:
    """A forest fitted to 75 % of a profile table's samples, and the record's task features."""
    references = References(profiles)
    samples = profiles[~is_reference(profiles)].reset_index(drop=True)
    rows = samples.iloc[split_rows(len(samples), rng=np.random.default_rng(seed))[0]]
    forest = Forest(seed=seed, target=target).fit(
        table2.of_profiles(rows, references), rows["time_s"].to_numpy(), rows["power_w"].to_numpy()
    )
    return forest, references


@cache
def _trained(seed: int) -> tuple[Forest, References]:
    return train(store.read(files.data("profiles", "emulated")), seed=seed)


@cache
def _learned(seed: int) -> PhysicsPredictor:
    return PhysicsPredictor.fit(store.read(files.data("profiles", "emulated")), seed=seed)


@cache
def _memories(seed: int) -> Memories:
    return {}


def kept_predictor(seed: int = 0) -> ForestPredictor:
    """The paper's forest with the answers that others of this process were given, by `load_predictor`'s profiles.

    It says and counts what `load_predictor` does; only time differs, as for a scheduler that has met its workloads.
    """
    return ForestPredictor(*_trained(seed), _memories(seed))


def load_predictor(seed: int = 0, kind: str = "paper") -> Predictor:
    """A predictor of the committed profiles of T4, V100 and A100; it is trained once in a process.

    Args:
        seed: of the split and of the learner.
        kind: `paper`, the random forest of Section III-A, or `physics`, the better one of
            `heshare.prediction.believing`.

    Raises:
        InputError: an unknown kind, or a profile is missing or damaged.
    """
    if kind not in KINDS:
        raise InputError(column="kind", found=repr(kind), expected=" or ".join(KINDS), action="Choose one predictor.")
    return ForestPredictor(*_trained(seed)) if kind == "paper" else _learned(seed).fresh()
