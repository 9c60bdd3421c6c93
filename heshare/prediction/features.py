"""Table II: the features of the predictor, for tasks that share a GPU (Section III-A).

A row of features describes one task (the *target*) that is added to a GPU where other tasks (its *co-runners*) run.
Task features are those of the task alone, at 100 % and the top clock, so a prediction needs no measurement of the
pairing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from heshare.profiles.missing_utilisation import fill_missing
from heshare.profiles.schema import residents_of
from heshare.shared.arrays import FloatArray, IntArray
from heshare.shared.errors import NotProfiledError
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload


class Feature(NamedTuple):
    """One feature: its name, its group in Table II, its unit and what it means."""

    name: str
    group: str
    unit: str
    meaning: str


FEATURES = (
    Feature("sm_util_pct", "Task features", "%", "SM utilisation of the task alone"),
    Feature("dram_util_pct", "Task features", "%", "memory bandwidth utilisation of the task alone"),
    Feature("l2_util_pct", "Task features", "%", "L2 cache utilisation of the task alone"),
    Feature("alone_s", "Task features", "s", "time of one iteration of the task alone, at 100 % and the top clock"),
    Feature("mps_pct", "MPS configuration", "%", "MPS percentage assigned to the task"),
    Feature("clock_pct", "DVFS frequency", "%", "SM clock requested for the GPU, of its top clock"),
    Feature("occupied_sm_pct", "Collocation features", "%", "sum of the SM utilisations that the co-runners ask for"),
    Feature("occupied_dram_pct", "Collocation features", "%", "memory bandwidth utilisation that they ask for"),
    Feature("occupied_l2_pct", "Collocation features", "%", "L2 cache utilisation that they ask for"),
    Feature("occupied_power_w", "Collocation features", "W", "power of the GPU with the co-runners, without the task"),
    Feature("sm_count", "GPU features", "", "streaming multiprocessors of the GPU"),
    Feature("mem_bw_gbs", "GPU features", "GB/s", "peak memory bandwidth of the GPU"),
    Feature("l2_mib", "GPU features", "MiB", "L2 cache of the GPU"),
    Feature("idle_w", "GPU features", "W", "basic power of the GPU: what it draws with nothing running"),
)
FEATURE_NAMES = tuple(feature.name for feature in FEATURES)
SM, ALONE, MPS, CLOCK = map(FEATURE_NAMES.index, ("sm_util_pct", "alone_s", "mps_pct", "clock_pct"))
DRAM, L2 = map(FEATURE_NAMES.index, ("dram_util_pct", "l2_util_pct"))
OCCUPIED_SM, OCCUPIED_POWER = map(FEATURE_NAMES.index, ("occupied_sm_pct", "occupied_power_w"))
OCCUPIED_DRAM, OCCUPIED_L2 = map(FEATURE_NAMES.index, ("occupied_dram_pct", "occupied_l2_pct"))
SM_COUNT, IDLE = map(FEATURE_NAMES.index, ("sm_count", "idle_w"))
TABLE_II = slice(0, len(FEATURES))
"""The columns that Table II lists."""
GUESSED_POWER = len(FEATURES)
"""The column after them: a first guess of the GPU's power with the whole set, W (`FeatureEncoder`). Table II has none;
it needs the power of the task alone, which is recorded for stage 1."""

CurveKey = tuple[str, str, str, str]
"""(GPU, workload, precision, engine): what the reference rows of one curve have in common."""

_TASK_COLUMNS = ("sm_util_pct", "dram_util_pct", "l2_util_pct", "time_s", "power_w")
_EXACT = 2.0**20  # sums of multiples of 2**-20 are exact, so the order of co-runners cannot change a bit


def is_reference(profiles: pd.DataFrame) -> pd.Series:
    """Return which rows are reference rows, which give the task features: alone, at 100 %, at the top clock."""
    top = profiles["gpu"].map({name: find_gpu(name).max_mhz for name in profiles["gpu"].unique()})
    return (profiles["co_runners"] == "") & (profiles["mps_pct"] == 100) & (profiles["sm_mhz"] == top)


def reference_curves(references: pd.DataFrame) -> Iterator[tuple[CurveKey, FloatArray, pd.DataFrame]]:
    """Yield (key, inference batch sizes, rows) of each GPU, workload, precision and engine, sizes ascending."""
    keys = ["gpu", "workload", "precision", "engine"]
    for key, rows in references.sort_values([*keys, "batch_size"]).groupby(keys):
        gpu, workload, precision, engine = map(str, key)
        rows = rows.drop_duplicates("batch_size")
        yield (gpu, workload, precision, engine), rows["batch_size"].to_numpy(float), rows


def interpolate_logs(batch_size: int, sizes: FloatArray, values: FloatArray) -> FloatArray:
    """Interpolate positive columns, shape (sizes, k), at an inference batch size, logarithms against logarithms."""
    size = np.log(batch_size)
    columns = np.log(values).T
    interpolated: FloatArray = np.exp(np.array([np.interp(size, np.log(sizes), column) for column in columns]))
    return interpolated


def not_covered(gpu: str, workload: Workload | None, expected: str) -> NotProfiledError:
    """Return the error for a workload on a GPU (None: for the GPU itself) that the profiles do not cover."""
    subject = f"{workload} ({workload.precision}, {workload.engine}) on {gpu}" if workload else gpu
    return NotProfiledError(
        f"{subject}, which the profiles do not cover",
        expected,
        f"Record {subject} alone at 100 % and the top clock: `heshare profile --device emulated:{gpu} --out "
        "data/profiles/emulated`; then name that folder, --profiles data/profiles/emulated.",
        column="workload" if workload else "gpu",
    )


class ReferenceFeatures:
    """Task features by GPU and workload, from the reference rows of profiles.

    A utilisation that the GPU's counters did not report is the device model's, with a `ModelledUtilisationWarning`.

    Attributes:
        idle_w: power with nothing running, W, by the name of the GPU.
    """

    def __init__(self, profiles: pd.DataFrame) -> None:
        alone = fill_missing(profiles[is_reference(profiles)])
        self._curves = {
            key: (sizes, rows[list(_TASK_COLUMNS)].to_numpy(float)) for key, sizes, rows in reference_curves(alone)
        }
        self.idle_w = {str(name): float(value) for name, value in alone.groupby("gpu")["idle_w"].mean().items()}

    def idle_of(self, gpu: str) -> float:
        """Return the power of a GPU with nothing running, W, as recorded.

        Raises:
            InputError: the profiles do not cover this GPU.
        """
        if gpu not in self.idle_w:
            raise not_covered(gpu, None, "profiles of " + (", ".join(sorted(self.idle_w)) or "no GPU"))
        return self.idle_w[gpu]

    def task(self, gpu: str, workload: Workload) -> FloatArray:
        """Return SM, memory bandwidth and L2 utilisation (%), time (s) and GPU power (W) of a workload alone, (5,).

        An inference batch size between two recorded ones is interpolated, logarithms against logarithms.

        Raises:
            InputError: the profiles do not cover the workload or the size.
        """
        curve = self._curves.get((gpu, workload.model, workload.precision, workload.engine))
        if curve is None:
            raise not_covered(gpu, workload, "reference rows of " + (", ".join(sorted(self.idle_w)) or "no GPU"))
        sizes, values = curve
        exact = np.flatnonzero(sizes == workload.batch_size)
        if exact.size:
            row: FloatArray = values[exact[0]]
            return row
        if not sizes[0] < workload.batch_size < sizes[-1]:
            raise not_covered(gpu, workload, f"inference batch sizes {sizes[0]:.0f} to {sizes[-1]:.0f}")
        return interpolate_logs(workload.batch_size, sizes, np.maximum(values, 1e-9))


class FeatureEncoder:
    """Turns sets of tasks that share one GPU into rows of Table II's features.

    The demand of each co-runner follows from its features alone, with SM utilisation u, its MPS percentage s and the
    clock over the top clock c, as fractions. Its computing stretches by 1 / c, so alone at that clock an iteration
    takes g = 1 - u + u / c times as long and keeps v = u / c / g of the SMs busy; its MPS percentage lets it reach
    r = min(1, s / v) of that. So it occupies r v of the SMs, r / g of its memory bandwidth and L2 utilisation alone,
    and adds r c v / u of the power above idle that it draws alone. The occupied features are sums over the co-runners
    (above 100 % when they demand more than there is); the occupied power is idle power plus the sum. The guessed power
    is idle power plus what all tasks add, the target included, over their demand for SMs where that exceeds 100 %.

    Attributes:
        gpu: the GPU that is shared.
        idle_w: its power with nothing running, W, as recorded.

    Raises:
        InputError: the profiles do not cover this GPU.
    """

    def __init__(self, gpu: Gpu, references: ReferenceFeatures) -> None:
        self.gpu = gpu
        self._references = references
        self.idle_w = references.idle_of(gpu.name)
        self._ids: dict[Resident, int] = {}
        self._rows: list[list[float]] = []
        self._table = np.empty((0, 6))
        self._clocks: dict[int | None, int] = {None: gpu.max_mhz}

    def ids(self, residents: Iterable[Resident]) -> list[int]:
        """Return a small number for each different resident, as `id_of`."""
        return [self.id_of(resident) for resident in residents]

    def id_of(self, resident: Resident) -> int:
        """Return the number of a resident, or a `NotProfiledError` where the profiles do not cover it."""
        number = self._ids.get(resident)
        return self._add(resident) if number is None else number

    def clock(self, sm_mhz: int | None) -> int:
        """Return the clock in MHz, or an `InputError` off the GPU's grid; None (no clock set) is the top clock."""
        if sm_mhz not in self._clocks:
            self._clocks[sm_mhz] = self.gpu.check_clock(int(sm_mhz or 0))
        return self._clocks[sm_mhz]

    def is_full(self, resident_id: int) -> bool:
        """Return whether a resident has 100 %, so that alone at the top clock it is a reference row."""
        return self._rows[resident_id][4] == 100

    def alone(self, resident_id: int) -> tuple[float, float]:
        """Return the recorded time of one iteration (s) and GPU power (W) of a resident's workload alone."""
        row = self._rows[resident_id]
        return row[3], row[5]

    def rows(self, sets: IntArray, sm_mhz: IntArray) -> FloatArray:
        """Return the features of every task of m sets, with the rest of its set as co-runners.

        `sets` are ids of residents, shape (m, k), -1 beyond a set's size; `sm_mhz` is the clock of each, MHz, shape
        (m,). The result is NaN beyond a set's size, of the shape (m, k, 15), columns as in `FEATURES` and
        `GUESSED_POWER`.
        """
        if len(self._table) < len(self._rows):
            self._table = np.array(self._rows)
        table = np.vstack([self._table, np.zeros(self._table.shape[1])])  # the last row is that of id -1
        task = table[:, :5][sets]
        clock = (sm_mhz / self.gpu.max_mhz)[:, None]
        demand = self._demand(task, table[:, 5][sets], clock)
        total = demand.sum(axis=1, keepdims=True)
        occupied = total - demand
        occupied[..., 3] += self.idle_w
        guessed_w = self.idle_w + total[..., 3:] / np.maximum(1.0, total[..., :1] / 100)
        gpu = [self.gpu.sm_count, self.gpu.mem_bw_gbs, self.gpu.l2_mib, self.idle_w]
        clock_pct = np.broadcast_to(100 * clock[..., None], (*sets.shape, 1))
        alike = [np.broadcast_to(gpu, (*sets.shape, 4)), np.broadcast_to(guessed_w, (*sets.shape, 1))]
        columns = [task, clock_pct, occupied, *alike]
        return np.where((sets >= 0)[..., None], np.concatenate(columns, axis=2), np.nan)

    def _demand(self, task: FloatArray, power_w: FloatArray, clock: FloatArray) -> FloatArray:
        # SMs, memory bandwidth, L2 (%) and power (W) that each task takes from its co-runners, shape (m, k, 4).
        busy, share = np.maximum(task[..., 0], 1e-6) / 100, task[..., 4] / 100
        stretch = 1 - busy + busy / clock
        at_clock = busy / clock / stretch
        reach = np.minimum(1.0, share / at_clock)
        dynamic_w = np.maximum(power_w - self.idle_w, 0.0) * clock * at_clock / busy
        taken = [100 * at_clock, task[..., 1] / stretch, task[..., 2] / stretch, dynamic_w]
        demand: FloatArray = np.round(np.stack(taken, axis=2) * reach[..., None] * _EXACT) / _EXACT
        return demand

    def _add(self, resident: Resident) -> int:
        task = self._references.task(self.gpu.name, resident.workload).tolist()
        self._rows.append([*task[:4], float(resident.mps_pct), task[4]])
        self._ids[resident] = len(self._rows) - 1
        return self._ids[resident]


def pad(sets: Sequence[Sequence[int]]) -> IntArray:
    """Return sets of ids as one array, shape (m, largest set), -1 beyond a set's size."""
    width = max(map(len, sets), default=0)
    return np.array([[*ids, *[-1] * (width - len(ids))] for ids in sets], dtype=np.int64).reshape(len(sets), width)


def profile_features(profiles: pd.DataFrame, references: ReferenceFeatures | None = None) -> FloatArray:
    """Return the features of the observed task of every row of a profile table, shape (rows, 15)."""
    members = list(map(residents_of, profiles.itertuples(index=False)))
    mhz = profiles["sm_mhz"].to_numpy(np.int64)
    return set_features(profiles["gpu"].tolist(), members, mhz, references or ReferenceFeatures(profiles))


def set_features(
    gpus: Sequence[str], members: Sequence[tuple[Resident, ...]], sm_mhz: IntArray, references: ReferenceFeatures
) -> FloatArray:
    """Return the features of the first resident of each of m sets, on its GPU at its clock (MHz), shape (m, 15).

    Raises:
        InputError: the reference row of a workload is missing.
    """
    features = np.empty((len(gpus), GUESSED_POWER + 1))
    for name in sorted(set(gpus)):
        where = np.flatnonzero([gpu == name for gpu in gpus])
        encoder = FeatureEncoder(find_gpu(name), references)
        sets = [encoder.ids(members[row]) for row in where.tolist()]
        features[where] = encoder.rows(pad(sets), sm_mhz[where])[:, 0]
    return features
