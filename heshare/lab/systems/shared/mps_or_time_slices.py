"""MPS against time slices: measured throughputs of processes that shared a GPU in both ways, and those of the model."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from heshare.devices.device_model import co_run
from heshare.lab.systems.shared.time_slicing import TIME_SLICE
from heshare.shared import files
from heshare.world import catalogue
from heshare.world.workload import Resident


def measured() -> pd.DataFrame:
    """Return one row a set of processes, with `ratio`: its throughput under MPS over that in time slices.

    `cuda_graphs` is `yes`, `no` or empty if the source does not state it; `stand_in` are residents of the catalogue,
    of similar networks, that the model is evaluated for.
    """
    table = pd.read_csv(files.data("calibration", "mps_or_time_slices.csv"), keep_default_na=False)
    keys = ["gpu", "workload", "cuda_graphs", "replicas", "stand_in"]
    wide = table.pivot_table(index=keys, columns="sharing", values="throughput").reset_index()
    return wide.assign(ratio=wide["mps"] / wide[TIME_SLICE])


def modelled(gpu: str, residents: Sequence[Resident], sm_mhz: int | None = None) -> list[float]:
    """Return each resident's rate under MPS over that in time slices, by the device model."""
    turns = [replace(resident, mps_pct=100, sharing=TIME_SLICE) for resident in residents]
    slices, mps = (co_run(catalogue.gpu(gpu), own, sm_mhz).tasks for own in (turns, residents))
    return [slow.time_s / fast.time_s for slow, fast in zip(slices, mps, strict=True)]


def limit_note(
    gpu: str, residents: Sequence[Resident], sm_mhz: int | None = None, *, ratios: Sequence[float] | None = None
) -> str:
    """Return a note that MPS was measured both faster and slower than time slices for such residents, or nothing.

    `ratios` are those of `modelled`, if known.
    """
    alike = catalogue.gpu(gpu).architecture == "hopper" or residents[0].workload.engine == "tensorrt"
    if len(residents) < 2 or residents[0].sharing != "mps" or not alike:
        return ""
    rows = measured().set_index("cuda_graphs")
    text = ", ".join(f"{ratio:.2f}" for ratio in (modelled(gpu, residents, sm_mhz) if ratios is None else ratios))
    return (
        f"by the model MPS gives these residents {text} times the rates of time slices; it lacks a term: of "
        f"{rows.workload['no']} on an {rows.gpu['no']}, {rows.ratio['no']:.3f} was measured without CUDA graphs and "
        f"{rows.ratio['yes']:.3f} with them (data/calibration/mps_or_time_slices.csv)."
    )
