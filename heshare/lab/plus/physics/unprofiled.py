"""Predictions for GPUs and workloads without profiles, from the device model's answers for each workload alone."""

import warnings
from collections.abc import Callable, Iterable, Sequence

import pandas as pd

from heshare.devices.emulated_device import EmulatedDevice
from heshare.prediction.features import ReferenceFeatures, is_reference
from heshare.prediction.predictor import CoRuns, Predictor
from heshare.profiles.design import BATCH_SIZES, references
from heshare.profiles.recorder import record
from heshare.shared.errors import NotProfiledError
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.catalogue import paper_models
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

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

    Args:
        profiles: a table of the profile schema.
        gpu: the GPU's name.
        workloads: those that the table does not hold; the rows of those that fit the GPU are made without noise.
    """
    recorded = profiles[is_reference(profiles) & (profiles["gpu"] == gpu)]
    names = ", ".join(sorted({workload.model for workload in workloads}))
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
