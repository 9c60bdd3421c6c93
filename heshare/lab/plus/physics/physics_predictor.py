"""The physics predictor: a roofline model of sharing, and a learner for the ratio of true values to it.

For a set of tasks the roofline (`heshare.lab.plus.physics.roofline`) gives a time and a power; extremely randomised
trees (Geurts et al., 2006, doi:10.1007/s10994-006-6226-1) learn ln(true / roofline) of each. The learner's features are
ratios only (roofline quantities, shares, clock ratios, the demand of co-runners) and identify neither workload nor GPU,
so that what it learns on some applies to others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import chain
from math import fsum
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.plus.physics.roofline import (
    BUSY,
    DRAM,
    HOST,
    L2,
    MEMORY,
    REACHED,
    TIME,
    WORK,
    IterationParts,
    ResidentSets,
    Roofline,
    RooflineState,
)
from heshare.prediction.features import FeatureEncoder, ReferenceFeatures, is_reference
from heshare.prediction.forest import load_forest_predictor, shipped_references
from heshare.prediction.predictor import CoRuns, Predictor
from heshare.prediction.record_predictor import RecordPredictor
from heshare.prediction.samples import Samples, training_rows
from heshare.profiles import store
from heshare.profiles.design import BATCH_SIZES, references
from heshare.profiles.recorder import record
from heshare.profiles.schema import residents_of
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import NotProfiledError, require
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.catalogue import paper_models
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

if TYPE_CHECKING:
    from heshare.prediction.table5 import FittedPredictor, OtherTechniques

PREDICTOR_KINDS = ("forest", "physics")
"""Predictors that `load_predictor` returns; the first, with the paper's technique, is the default."""


class PhysicsModel:
    """Times and power of sets: `Roofline` times the ratio that randomised trees predict.

    On published times of workloads that were left out, the trees' error is 3.2 %, that of gradient boosting 3.8 % and
    that of the roofline alone 3.6 %. On the emulated profiles, which have the roofline's form, boosting has 5.4 %, the
    trees 5.8 %.
    """

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self._roofline = Roofline()
        self._time_model: Any = None
        self._power_model: Any = None

    def fit(self, sets: ResidentSets, time_s: FloatArray, power_w: FloatArray) -> PhysicsModel:
        """Learn from the times (s) of every set's first resident and the GPU's power (W; NaN: unknown), each (m,).

        Returns itself.
        """
        self._roofline = Roofline.fit(sets, time_s, power_w)
        state = self._roofline.run(sets)
        features = _features(sets, state)[sets.starts]
        self._time_model = self._learn(features, np.log(time_s / state.time_s[sets.starts]))
        self._power_model = self._learn(features, np.log(power_w / state.power_w))
        return self

    def predict(self, sets: ResidentSets) -> tuple[FloatArray, FloatArray]:
        """Return times of all residents (s), shape (r,), and power with each of them as the observed one (W), (r,)."""
        state = self._roofline.run(sets)
        power_w = state.power_w[sets.row]
        time_s = state.time_s
        if not len(time_s):
            return time_s, power_w
        features = _features(sets, state)
        if self._time_model is not None:
            time_s = time_s * np.exp(self._time_model.predict(features))
        if self._power_model is not None:
            power_w = np.minimum(power_w * np.exp(self._power_model.predict(features)), sets.limit_w[sets.row])
        return time_s, power_w

    def predict_first(self, sets: ResidentSets) -> tuple[FloatArray, FloatArray]:
        """Return the time (s) of every set's first resident and the power (W) of the set, each (m,)."""
        time_s, power_w = self.predict(sets)
        return time_s[sets.starts], power_w[sets.starts]

    def _learn(self, features: FloatArray, log_ratio: FloatArray) -> Any:
        recorded = np.isfinite(log_ratio)
        if not recorded.any():
            return None
        from sklearn.ensemble import ExtraTreesRegressor  # slow to import

        trees = ExtraTreesRegressor(150, max_features=0.6, min_samples_leaf=2, n_jobs=1, random_state=self._seed)
        return trees.fit(features[recorded], log_ratio[recorded].round(9))


def _features(sets: ResidentSets, state: RooflineState) -> FloatArray:
    """Return the features of each resident for the trees, shape (r, 17)."""
    parts, row = sets.tasks, sets.row
    gpu_s = parts[:, MEMORY] + parts[:, WORK] / parts[:, REACHED]
    of_co_runners = [
        np.add.reduceat(values, sets.starts)[row] - values for values in (state.load, state.bandwidth, state.duty_cycle)
    ]
    active = np.add.reduceat(state.active, sets.starts)[row]
    slowdown = np.log(state.time_s / parts[:, TIME])
    stretched = np.log(parts[:, WORK] / (parts[:, TIME] * sets.share * state.clock[row]))
    columns = [
        parts[:, BUSY], parts[:, DRAM], parts[:, L2], np.log(parts[:, HOST] / parts[:, TIME]), parts[:, MEMORY] / gpu_s,
        parts[:, REACHED], sets.clock[row], state.clock[row], sets.share, *of_co_runners, active, sets.size[row] - 1,
        slowdown, stretched, state.power_w[row] / sets.limit_w[row],
    ]  # fmt: skip
    return np.column_stack(columns).round(9)


class PhysicsPredictor(RecordPredictor):
    """Predictor of schedulers with a `PhysicsModel`.

    It predicts for GPUs and workloads that no training row holds, if their reference rows are recorded. `parts` are of
    iterations alone; `fallback` is as in `RecordPredictor`.
    """

    def __init__(
        self,
        model: PhysicsModel,
        parts: IterationParts,
        references: ReferenceFeatures,
        fallback: Predictor | None = None,
    ) -> None:
        super().__init__(references, fallback=fallback)
        self._model = model
        self._parts = parts

    @classmethod
    def fit(cls, profiles: pd.DataFrame, *, seed: int = 0) -> PhysicsPredictor:
        """Train on 75 % of a profile table's samples, the rows that train the paper's forest too.

        `seed` is that of the split and of the learner.

        Raises:
            InputError: the reference row of a workload is missing.
        """
        parts, references = IterationParts(profiles), ReferenceFeatures(profiles)
        rows = training_rows(profiles, seed=seed)
        members = list(map(residents_of, rows.itertuples(index=False)))
        sets = ResidentSets.of(rows["gpu"].tolist(), members, rows["sm_mhz"].to_numpy(float), parts, references)
        time_s, power_w = rows["time_s"].to_numpy(float), rows["power_w"].to_numpy(float)
        return cls(PhysicsModel(seed=seed).fit(sets, time_s, power_w), parts, references)

    def fresh(self, fallback: Predictor | None = None) -> PhysicsPredictor:
        """Return the same predictor with an empty cache, no calls and that fallback."""
        return PhysicsPredictor(self._model, self._parts, self._references, fallback)

    def over(self, references: pd.DataFrame) -> PhysicsPredictor:
        """Return a predictor with the same fitted model for the GPUs and workloads of other reference rows."""
        return PhysicsPredictor(self._model, IterationParts(references), ReferenceFeatures(references))

    def _predict_sets(self, encoder: FeatureEncoder, ids: IntArray, sm_mhz: IntArray) -> tuple[FloatArray, FloatArray]:
        # Residents are laid in their own order, so that the order in which a process met them changes no bit.
        members = [[encoder.resident(number) for number in row if number >= 0] for row in ids.tolist()]
        orders = [sorted(range(len(residents)), key=residents.__getitem__) for residents in members]
        laid = [[residents[at] for at in order] for residents, order in zip(members, orders, strict=True)]
        tasks = np.array([self._parts.of(encoder.gpu.name, resident.workload) for resident in chain(*laid)])
        share = np.array([resident.mps_pct / 100 for resident in chain(*laid)])
        sizes = [len(order) for order in orders]
        on = ResidentSets.on(encoder.gpu, encoder.idle_w, tasks, share, sizes, sm_mhz.astype(float))
        times, powers = self._model.predict(on)
        time_s, power_w, end = np.full(ids.shape, np.nan), np.empty(len(ids)), 0
        for row, order in enumerate(orders):
            start, end = end, end + len(order)
            time_s[row, order] = times[start:end]
            power_w[row] = fsum(powers[start:end].tolist()) / len(order)
        return time_s, power_w


def sets_of_samples(samples: Samples) -> ResidentSets:
    """Return the sets of residents of samples, as the roofline takes them."""
    gpus, mhz = samples.rows["gpu"].tolist(), samples.rows["sm_mhz"].to_numpy(float)
    parts, references = IterationParts(samples.references), ReferenceFeatures(samples.references)
    return ResidentSets.of(gpus, samples.members, mhz, parts, references)


def _technique(samples: Samples, seed: int) -> FittedPredictor:
    sets, true_values = sets_of_samples(samples), samples.truth

    def predict(train: IntArray, test: IntArray) -> FloatArray:
        model = PhysicsModel(seed=seed).fit(sets.pick(train), *true_values[train].T)
        return np.column_stack(model.predict_first(sets.pick(test)))

    return predict


PHYSICS_TECHNIQUE: OtherTechniques = {"Physics": _technique}
"""The physics predictor as a further technique of Table V (`prediction_errors(..., others=PHYSICS_TECHNIQUE)`)."""


Workloads = tuple[Workload, ...]


class UnprofiledWarning(UserWarning):
    """Some predictions rest on the device model's answers for a workload alone, not on a profile."""


class UnprofiledPredictor(Predictor):
    """Predictor for GPUs and workloads that the shipped profiles do not hold.

    What is missing, each workload alone at 100 % and the top clock, is taken from the device model. Shared runs are
    not: another predictor predicts them from these rows, so that a scheduler sees no more than of a recorded GPU.

    Args:
        recorded: returns the task features of the shipped profiles.
        make: returns a predictor for a GPU, by name, and for workloads that are not recorded there, sorted.
    """

    def __init__(self, recorded: Callable[[], ReferenceFeatures], make: Callable[[str, Workloads], Predictor]) -> None:
        self._recorded = recorded
        self._make = make
        self._predictors: dict[Gpu, tuple[set[Workload], Predictor]] = {}
        self._earlier_calls = 0

    @property
    def calls(self) -> int:
        """Rows predicted so far."""
        return self._earlier_calls + sum(predictor.calls for _, predictor in self._predictors.values())

    def co_run(self, sets: Sequence[tuple[Resident, ...]], gpu: Gpu, sm_mhz: Sequence[int | None]) -> CoRuns:
        """Predict sets of residents, each at its clock (MHz; None: the top clock).

        Raises:
            InputError: a clock is off the grid, or the device model does not know the GPU or a workload.
        """
        wanted = {resident.workload for residents in sets for resident in residents}
        known, predictor = self._predictors.get(gpu, (set[Workload](), None))
        if predictor is None or not wanted <= known:
            known = known | wanted
            self._earlier_calls += 0 if predictor is None else predictor.calls
            predictor = self._make(gpu.name, self._unrecorded(gpu.name, known))
            self._predictors[gpu] = known, predictor
        return predictor.co_run(sets, gpu, sm_mhz)

    def _unrecorded(self, gpu: str, workloads: Iterable[Workload]) -> Workloads:
        """Return the workloads without reference rows, each at every recorded inference batch size and its own."""
        recorded = self._recorded()
        every = set(workloads)
        if gpu not in recorded.idle_w:
            every |= {Workload(name, BATCH_SIZES[0]) for name in paper_models()}
        missing = {
            Workload(workload.model, size, workload.precision, workload.engine)
            for workload in every
            if not _covers(recorded, gpu, workload)
            for size in (*BATCH_SIZES, workload.batch_size)
        }
        return tuple(sorted(missing, key=lambda each: (each.precision, each.engine, each.model, each.batch_size)))


def with_modelled_rows(profiles: pd.DataFrame, gpu: str, workloads: Workloads) -> pd.DataFrame:
    """Return the reference rows of a GPU, with the device model's for `workloads`, and warn with `UnprofiledWarning`.

    The table does not hold these workloads; rows are made of those that fit the GPU, without noise.
    """
    recorded = profiles[is_reference(profiles) & (profiles["gpu"] == gpu)]
    plain = Workload("", 1)
    kinds = {
        workload.model
        + f" in {workload.precision.upper()}" * (workload.precision != plain.precision)
        + f" by {workload.engine}" * (workload.engine != plain.engine)
        for workload in workloads
    }
    names = ", ".join(sorted(kinds))
    warnings.warn(
        f"no profile of {gpu if recorded.empty else f'{names} on {gpu}'}: predicted from the device model's answers "
        f"for each workload alone. To plan with a profile: heshare profile --device emulated:{gpu} --out FOLDER "
        "(nvml:0 for a GPU of this machine), then --profiles FOLDER.",
        UnprofiledWarning,
        stacklevel=2,
    )
    card = find_gpu(gpu)
    return pd.concat([recorded, record(EmulatedDevice(card), references(card, workloads), progress=False)])


def _covers(references: ReferenceFeatures, gpu: str, workload: Workload) -> bool:
    try:
        references.task(gpu, workload)
    except NotProfiledError:
        return False
    return True


@cache
def _shipped_profiles() -> pd.DataFrame:
    return store.read_shipped()


@cache
def _shipped_physics(seed: int) -> PhysicsPredictor:
    return PhysicsPredictor.fit(_shipped_profiles(), seed=seed)


@cache
def _physics_over_modelled_rows(seed: int, gpu: str, workloads: Workloads) -> PhysicsPredictor:
    return _shipped_physics(seed).over(with_modelled_rows(_shipped_profiles(), gpu, workloads))


def _unprofiled(seed: int, gpu: str, workloads: Workloads) -> PhysicsPredictor:
    return _physics_over_modelled_rows(seed, gpu, workloads).fresh()


def load_predictor(seed: int = 0, kind: str = "forest", *, shared_cache: bool = False) -> Predictor:
    """Return a predictor trained on the committed profiles of T4, V100 and A100.

    For GPUs and workloads that these profiles do not hold, the physics model predicts from the device model's answers
    for each workload alone, with an `UnprofiledWarning`.

    Args:
        seed: of the split and of the learner.
        kind: `forest`, the random forest of Section III-A, or `physics`, the roofline with learned residuals. The
            forest is not literally the paper's: it learns time and power over first guesses from the load (`Targets`),
            since learned as they are they have several times the error (Table V).
        shared_cache: of the forest, see `load_forest_predictor`.

    Raises:
        InputError: an unknown kind, or a profile is missing or damaged.

    Example:
        >>> from heshare import Workload, load_predictor
        >>> from heshare.world.catalogue import gpu
        >>> alone = load_predictor().solo([Workload("resnet50", 16)], gpu("V100"))
        >>> float(alone.time_s[0, 0].round(4)), float(alone.power_w[0].round())
        (0.0154, 200.0)
    """
    require("kind", repr(kind), kind in PREDICTOR_KINDS, " or ".join(PREDICTOR_KINDS), "Choose one predictor.")
    fallback = UnprofiledPredictor(shipped_references, partial(_unprofiled, seed))
    if kind == "forest":
        return load_forest_predictor(seed, shared_cache=shared_cache, fallback=fallback)
    return _shipped_physics(seed).fresh(fallback)
