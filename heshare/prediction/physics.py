"""The better predictor: a roofline model of sharing, and gradient boosting for what it leaves unsaid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold

from heshare.errors import InputError
from heshare.prediction.features import References
from heshare.prediction.parts import Parts
from heshare.prediction.predictor import FloatArray
from heshare.prediction.roofline import BUSY, DRAM, HOST, L2, MEMORY, REACHED, TIME, WORK, Roofline, Sets, State
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

LEARNERS = ("none", "boosting", "monotone", "trees")
"""What learns the rest: nothing, gradient boosting, the same with monotone constraints, extremely random trees."""
LEARNER = "trees"
"""The best of the four on workloads left out (`heshare.prediction.fewshot.learners` compares them); its own error there
is a little flattered by that."""
# Name, and which way the time may go as the feature grows (0: either way).
_FEATURES = (
    ("busy", 0), ("dram", 0), ("l2", 0), ("host", 0), ("memory", 0), ("reached", 0), ("clock asked", -1),
    ("clock", 0), ("share", -1), ("load of the others", 1), ("bandwidth of the others", 1), ("duty of the others", 1),
    ("active", 0), ("others", 1), ("slowdown", 1), ("stretched work", 1), ("power over the limit", 0),
)  # fmt: skip
_BOOSTING: dict[str, Any] = {
    "max_iter": 150,
    "learning_rate": 0.08,
    "min_samples_leaf": 8,
    "max_leaf_nodes": 12,
    "l2_regularization": 1.0,
    "early_stopping": False,
}
_CALIBRATION_FOLDS = 3


@dataclass(frozen=True, slots=True)
class Intervals:
    """Half-widths of intervals in logarithms, for tasks alone and for tasks in company.

    Attributes:
        level: part of new rows that an interval is to cover, such as 0.9.
        time: half-widths for time, (2,): alone, in company.
        power: half-widths for power, (2,).
    """

    level: float
    time: tuple[float, float]
    power: tuple[float, float]


class PhysicsModel:
    """Times and power of sets: `Roofline`, times what a learner says of its ratio to the truth.

    The learner sees only ratios (roofline quantities, shares, clock ratios, the pressure of co-runners), nothing that
    names a workload or a GPU, so what it learned on some holds for others.

    Args:
        seed: of the learner.
        learner: one of `LEARNERS`.

    Raises:
        InputError: no such learner.
    """

    def __init__(self, *, seed: int, learner: str = LEARNER) -> None:
        if learner not in LEARNERS:
            raise InputError(
                column="learner", found=repr(learner), expected=" or ".join(LEARNERS), action="Choose one learner."
            )
        self.learner = learner
        self._seed = seed
        self.roofline = Roofline()
        self._models: tuple[Any, Any] = (None, None)

    def fit(
        self, sets: Sets, time_s: FloatArray, power_w: FloatArray, *, start: Roofline | None = None, refit: bool = True
    ) -> PhysicsModel:
        """Learn from the times (s) of every set's first resident and the GPU's power (W; NaN: unknown), each (m,).

        The search for the constants begins at `start`; with `refit=False` they are those of `start`, which was fitted
        to the same rows.
        """
        self.roofline = Roofline.fit(sets, time_s, power_w, start) if refit or start is None else start
        state = self.roofline.run(sets)
        seen = _features(sets, state)[sets.starts]
        gaps = np.log(time_s / state.time_s[sets.starts]), np.log(power_w / state.power_w)
        self._models = (self._learn(seen, gaps[0], constrained=True), self._learn(seen, gaps[1], constrained=False))
        return self

    def predict(self, sets: Sets) -> tuple[FloatArray, FloatArray]:
        """Times of all residents (s), shape (r,), and power with each of them as the observed one (W), (r,)."""
        state = self.roofline.run(sets)
        power_w = state.power_w[sets.row]
        time_s = state.time_s
        if not len(time_s):
            return time_s, power_w
        seen = _features(sets, state)
        if self._models[0] is not None:
            time_s = time_s * np.exp(self._models[0].predict(seen))
        if self._models[1] is not None:
            power_w = np.minimum(power_w * np.exp(self._models[1].predict(seen)), sets.limit_w[sets.row])
        return time_s, power_w

    def first(self, sets: Sets) -> tuple[FloatArray, FloatArray]:
        """Time (s) of every set's first resident and the power (W) of the set, each (m,)."""
        time_s, power_w = self.predict(sets)
        return time_s[sets.starts], power_w[sets.starts]

    def _learn(self, seen: FloatArray, gap: FloatArray, *, constrained: bool) -> Any:
        known = np.isfinite(gap)
        if self.learner == "none" or not known.any():
            return None
        if self.learner == "trees":
            model: Any = ExtraTreesRegressor(
                150, max_features=0.6, min_samples_leaf=2, n_jobs=1, random_state=self._seed
            )
        else:
            ways = [way for _, way in _FEATURES] if constrained and self.learner == "monotone" else None
            model = HistGradientBoostingRegressor(monotonic_cst=ways, random_state=self._seed, **_BOOSTING)
        return model.fit(seen[known], gap[known].round(9))


def left_out(sets: Sets, truth: FloatArray, groups: Sequence[str], *, model: PhysicsModel, seed: int) -> FloatArray:
    """Errors on training rows whose group was left out, ln(true / predicted) of time and power, shape (m, 2).

    Args:
        sets: the training rows.
        truth: their times (s) and powers (W; NaN: not recorded), (m, 2).
        groups: what is left out together, such as workloads, (m,).
        model: the model fitted to all of them; its constants begin each search.
        seed: of the learners.
    """
    gaps = np.full((len(truth), 2), np.nan)
    names = np.asarray(groups, dtype=str)
    for train, test in GroupKFold(min(_CALIBRATION_FOLDS, len(np.unique(names)))).split(names, groups=names):
        other = PhysicsModel(seed=seed, learner=model.learner)
        other.fit(sets.pick(train), *truth[train].T, start=model.roofline)
        gaps[test] = np.log(truth[test] / np.column_stack(other.first(sets.pick(test))))
    return gaps


def intervals(gaps: FloatArray, company: NDArray[np.bool_], *, level: float = 0.9) -> Intervals:
    """Conformal intervals from errors on rows that were left out (cross-conformal, by group).

    Args:
        gaps: as from `left_out`, (m, 2).
        company: which rows have co-runners, (m,).
        level: part of new rows to cover.
    """
    sizes = np.abs(gaps)
    (a, b), (c, d) = [[_quantile(sizes[company == on, column], level) for on in (False, True)] for column in (0, 1)]
    return Intervals(level, (a, b), (c, d))


def in_company(sets: Sets) -> NDArray[np.bool_]:
    """Which sets have more than one resident, (m,) of bool."""
    return np.asarray(np.diff(np.append(sets.starts, len(sets.row))) > 1)


def _quantile(values: FloatArray, level: float) -> float:
    """The conformal quantile: with n values, the ceil((n + 1) level)-th smallest; infinite where n is too small."""
    ordered = np.sort(values[np.isfinite(values)])
    rank = int(np.ceil((len(ordered) + 1) * level))
    return float(ordered[rank - 1]) if 0 < rank <= len(ordered) else float("inf")


def sets_of(
    gpus: Sequence[str],
    members: Sequence[tuple[Resident, ...]],
    sm_mhz: FloatArray,
    parts: Parts,
    references: References,
) -> Sets:
    """Sets of residents, m of them, each on a GPU of its own at a clock (MHz).

    Raises:
        InputError: the reference row of a workload is missing.
    """
    cards = {name: find_gpu(name) for name in dict.fromkeys(gpus)}
    known = {(name, one.workload): None for name, some in zip(gpus, members, strict=True) for one in some}
    tasks = {(name, workload): parts.of(name, workload) for name, workload in known}
    row = np.repeat(np.arange(len(members)), list(map(len, members)))
    return Sets(
        np.array([tasks[name, one.workload] for name, some in zip(gpus, members, strict=True) for one in some]),
        np.array([one.mps_pct / 100 for some in members for one in some]),
        row,
        tuple(cards[name] for name in gpus),
        sm_mhz / np.array([cards[name].max_mhz for name in gpus]),
        np.array([references.idle_w[name] for name in gpus]),
    )


def sets_on(
    gpu: Gpu, idle_w: float, tasks: FloatArray, share: FloatArray, sizes: Sequence[int], mhz: FloatArray
) -> Sets:
    """Sets on one GPU: residents laid end to end, `sizes` of them in each set, at clocks `mhz` (MHz)."""
    row = np.repeat(np.arange(len(sizes)), sizes)
    return Sets(tasks, share, row, (gpu,) * len(sizes), mhz / gpu.max_mhz, np.full(len(sizes), idle_w))


def _features(sets: Sets, state: State) -> FloatArray:
    """What the learner sees of each resident, shape (r, 17); columns as in `_FEATURES`."""
    parts, row = sets.tasks, sets.row
    still = parts[:, MEMORY] + parts[:, WORK] / parts[:, REACHED]
    sums = [np.add.reduceat(values, sets.starts)[row] - values for values in (state.load, state.bandwidth, state.duty)]
    active = np.add.reduceat(state.active, sets.starts)[row]
    others = np.diff(np.append(sets.starts, len(row)))[row] - 1
    slowdown = np.log(state.time_s / parts[:, TIME])
    stretched = np.log(parts[:, WORK] / (parts[:, TIME] * sets.share * state.clock[row]))
    columns = [
        parts[:, BUSY], parts[:, DRAM], parts[:, L2], np.log(parts[:, HOST] / parts[:, TIME]), parts[:, MEMORY] / still,
        parts[:, REACHED], sets.clock[row], state.clock[row], sets.share, *sums, active, others, slowdown, stretched,
        state.power_w[row] / sets.limit_w[row],
    ]  # fmt: skip
    return np.column_stack(columns).round(9)
