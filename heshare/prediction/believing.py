"""The better predictor as schedulers ask it: sets of residents in, times and power out."""

from __future__ import annotations

from itertools import chain
from math import fsum

import numpy as np
import pandas as pd

from heshare.prediction.features import Encoder, References, is_reference, residents_of
from heshare.prediction.memory import Answer, Key, RecordPredictor
from heshare.prediction.parts import Parts
from heshare.prediction.physics import LEARNER, PhysicsModel, sets_of, sets_on
from heshare.prediction.predictor import FloatArray
from heshare.prediction.splits import split_rows
from heshare.world.workload import Workload


class PhysicsPredictor(RecordPredictor):
    """A roofline of every task, and what was learned of its errors; see `heshare.prediction.physics`.

    It answers for GPUs and workloads that no training row shows, as long as their reference rows are recorded.

    Args:
        model: a fitted model.
        parts: what iterations alone are made of.
        references: task features of the record.
    """

    def __init__(self, model: PhysicsModel, parts: Parts, references: References) -> None:
        super().__init__(references)
        self._model = model
        self._parts = parts
        self._tasks: dict[tuple[str, Workload], FloatArray] = {}

    @classmethod
    def fit(cls, profiles: pd.DataFrame, *, seed: int = 0, learner: str = LEARNER) -> PhysicsPredictor:
        """Train on 75 % of a profile table's samples, the rows that train the paper's forest too.

        Args:
            profiles: a table of the profile schema, with its reference rows.
            seed: of the split and of the learner.
            learner: see `heshare.prediction.physics.LEARNERS`.

        Raises:
            InputError: the reference row of a workload is missing, or an unknown learner.
        """
        parts, references = Parts(profiles), References(profiles)
        samples = profiles[~is_reference(profiles)].reset_index(drop=True)
        rows = samples.iloc[split_rows(len(samples), rng=np.random.default_rng(seed))[0]]
        model = PhysicsModel(seed=seed, learner=learner)
        members = list(map(residents_of, rows.itertuples(index=False)))
        sets = sets_of(rows["gpu"].tolist(), members, rows["sm_mhz"].to_numpy(float), parts, references)
        time_s, power_w = rows["time_s"].to_numpy(float), rows["power_w"].to_numpy(float)
        return cls(model.fit(sets, time_s, power_w), parts, references)

    def fresh(self) -> PhysicsPredictor:
        """The same predictor without its memory and its count of calls."""
        return PhysicsPredictor(self._model, self._parts, self._references)

    def _ask(self, encoder: Encoder, keys: list[Key]) -> list[Answer]:
        # Residents are laid in their own order, so that the order in which a process met them changes no bit.
        members = [[encoder.resident(one) for one in ids] for _, ids in keys]
        orders = [sorted(range(len(found)), key=found.__getitem__) for found in members]
        laid = [[found[at] for at in order] for found, order in zip(members, orders, strict=True)]
        tasks = np.array([self._task(encoder.gpu.name, one.workload) for one in chain(*laid)])
        share = np.array([one.mps_pct / 100 for one in chain(*laid)])
        mhz = np.array([clock for clock, _ in keys], dtype=float)
        sizes = [len(order) for order in orders]
        times, powers = self._model.predict(sets_on(encoder.gpu, encoder.idle_w, tasks, share, sizes, mhz))
        self._calls += len(times)
        answers, end = [], 0
        for order in orders:
            start, end = end, end + len(order)
            back = dict(zip(order, times[start:end].tolist(), strict=True))
            mean_w = fsum(powers[start:end].tolist()) / len(order)
            answers.append(([back[at] for at in range(len(order))], mean_w))
        return answers

    def _task(self, gpu: str, workload: Workload) -> FloatArray:
        if (gpu, workload) not in self._tasks:
            self._tasks[gpu, workload] = self._parts.of(gpu, workload)
        return self._tasks[gpu, workload]
