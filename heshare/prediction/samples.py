"""What a predictor learns from: settings, and what was observed there; recorded, or published by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from heshare import files
from heshare.prediction.features import References, is_reference, of_sets, residents_of
from heshare.prediction.parts import Parts
from heshare.prediction.physics import sets_of
from heshare.prediction.predictor import FloatArray
from heshare.prediction.roofline import Sets
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.workload import Resident, Workload

PUBLISHED_GPU, PUBLISHED_SOURCE = "V100-SXM2", "igniter"
_LOW_PCT, _HIGH_PCT = 20, 80


@dataclass(frozen=True, slots=True)
class Samples:
    """m observations of a task on a GPU that it may share.

    Attributes:
        rows: one row an observation: gpu, workload (the observed task's model), sm_mhz (clock asked for), time_s,
            power_w (NaN: not recorded).
        members: the residents of each, the observed task first, m of them.
        references: reference rows, where task features come from.
        provenance: emulated, measured or published.
    """

    rows: pd.DataFrame
    members: tuple[tuple[Resident, ...], ...]
    references: pd.DataFrame
    provenance: str

    @property
    def truth(self) -> FloatArray:
        """Times (s) and powers (W; NaN: not recorded), shape (m, 2)."""
        return self.rows[["time_s", "power_w"]].to_numpy(float)

    def every(self, step: int) -> Samples:
        """Every `step`-th observation, for a smoke run."""
        return Samples(self.rows[::step].reset_index(drop=True), self.members[::step], self.references, self.provenance)

    def features(self) -> FloatArray:
        """Table II's features, shape (m, 14)."""
        gpus = self.rows["gpu"].tolist()
        return of_sets(gpus, self.members, self.rows["sm_mhz"].to_numpy(np.int64), References(self.references))

    def sets(self) -> Sets:
        """The sets of residents, as the roofline takes them."""
        gpus = self.rows["gpu"].tolist()
        mhz = self.rows["sm_mhz"].to_numpy(float)
        return sets_of(gpus, self.members, mhz, Parts(self.references), References(self.references))


def of_profiles(profiles: pd.DataFrame) -> Samples:
    """The samples of a profile table; its reference rows tell the task features.

    Raises:
        InputError: co-runners that cannot be read.
    """
    alone = is_reference(profiles)
    samples = profiles[~alone].reset_index(drop=True)
    members = tuple(map(residents_of, samples.itertuples(index=False)))
    kinds = sorted(profiles["provenance"].unique())
    return Samples(
        samples[["gpu", "workload", "sm_mhz", "time_s", "power_w"]], members, profiles[alone], "+".join(kinds)
    )


def published() -> Samples:
    """The public record of MPS on a V100-SXM2: AlexNet, ResNet-50, SSD and VGG-19 under TensorRT, alone and in pairs.

    Samples are the times alone at 10, 40, 50 and 60 % and both times of each of the 625 pairs; power was recorded for
    few settings and for no pair, so it is not among them. Nobody recorded these workloads alone at 100 % in the same
    run, nor their SM utilisation; both follow from their times at 20 and 80 %, which are therefore no samples: the
    part of the time that goes with 1 / share is work w, the SM utilisation w over the time at 100 %. L2 and bandwidth
    utilisation are those at 80 %. Power alone is interpolated over the inference batch sizes 1, 16 and 32.
    """
    gpu = find_gpu(PUBLISHED_GPU)
    times = pd.read_csv(files.data("calibration", "times.csv"))
    times = times[(times["gpu"] == gpu.name) & times["source"].str.contains(PUBLISHED_SOURCE)]
    alone = times[times["mps_pct"].isin([10, 40, 50, 60])]
    members: list[tuple[Resident, ...]] = [
        (_resident(row.workload, row.batch_size, row.mps_pct),) for row in alone.itertuples()
    ]
    time_s = alone["time_s"].tolist()
    for pair in pd.read_csv(files.data("calibration", "pairs.csv")).itertuples():
        one = _resident(pair.workload_1, pair.batch_size_1, pair.mps_pct_1)
        other = _resident(pair.workload_2, pair.batch_size_2, pair.mps_pct_2)
        members += [(one, other), (other, one)]
        time_s += [pair.time_1_s, pair.time_2_s]
    rows = pd.DataFrame(
        {
            "gpu": gpu.name,
            "workload": [tasks[0].workload.model for tasks in members],
            "sm_mhz": gpu.max_mhz,
            "time_s": time_s,
            "power_w": np.nan,
        }
    )
    return Samples(rows, tuple(members), _published_references(times), "published")


def _resident(model: object, batch_size: object, mps_pct: object) -> Resident:
    return Resident(Workload(str(model), int(str(batch_size)), "fp32", "tensorrt"), int(str(mps_pct)))


def _published_references(times: pd.DataFrame) -> pd.DataFrame:
    """Reference rows that follow from the times at 20 and 80 %."""
    gpu = find_gpu(PUBLISHED_GPU)
    by = times.set_index(["workload", "batch_size", "mps_pct"]).sort_index()
    low, high = (by.xs(pct, level="mps_pct") for pct in (_LOW_PCT, _HIGH_PCT))
    work_s = (low["time_s"] - high["time_s"]) / (100 / _LOW_PCT - 100 / _HIGH_PCT)
    time_s = high["time_s"] - (100 / _HIGH_PCT - 1) * work_s
    faster = high["time_s"] / time_s
    table = pd.DataFrame(
        {
            "time_s": time_s,
            "sm_util_pct": 100 * work_s / time_s,
            "dram_util_pct": high["dram_pct"] * faster,
            "l2_util_pct": high["l2_pct"] * faster,
        }
    ).reset_index()
    return table.assign(
        gpu=gpu.name,
        precision="fp32",
        engine="tensorrt",
        mps_pct=100,
        co_runners="",
        sm_mhz=gpu.max_mhz,
        sm_mhz_reached=float(gpu.max_mhz),
        idle_w=gpu.idle_w,
        power_w=_power_w(table["workload"].tolist(), table["batch_size"].to_numpy(float)),
    )


def _power_w(models: Sequence[str], sizes: FloatArray) -> FloatArray:
    """Power alone at 100 %, W, logarithms against logarithms between the recorded inference batch sizes."""
    power = pd.read_csv(files.data("calibration", "power.csv")).dropna(subset=["batch_size"])
    whole = power[(power["gpu"] == PUBLISHED_GPU) & (power["mps_pct"] == 100)].sort_values("batch_size")
    logs = np.empty(len(models))
    for model, rows in whole.groupby("workload"):
        at = np.array([name == model for name in models])
        logs[at] = np.interp(np.log(sizes[at]), np.log(rows["batch_size"].to_numpy(float)), np.log(rows["power_w"]))
    return np.exp(logs)
