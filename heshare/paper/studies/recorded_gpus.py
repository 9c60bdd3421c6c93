"""Results of recorded GPUs next to emulated ones: rows of Figs. 1 to 4, samples of predictors, inventory of records."""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from heshare.ops.recording.budget_plan import PAIRS
from heshare.ops.recording.recordings import COMMAND, Recording
from heshare.paper.studies.motivation import CLOCK_COLUMNS, pair_row, solo_columns
from heshare.prediction.features import is_reference
from heshare.prediction.load import covered_rows
from heshare.prediction.samples import Samples, profile_samples
from heshare.profiles.missing_utilisation import fill_missing, without_fill_warning
from heshare.profiles.schema import co_runner_counts, in_main_precision
from heshare.world.catalogue import gpu as card
from heshare.world.catalogue import models

ENOUGH, ENOUGH_WORKLOADS = 50, 5
"""The least numbers of samples and workloads of a record that predictors are trained on."""


def mark_measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with measured GPUs marked in its column `gpu`, such as `H100 (measured)`."""
    kinds = zip(frame["gpu"], frame["provenance"], strict=True)
    return frame.assign(gpu=[f"{gpu} ({kind})" if kind == "measured" else gpu for gpu, kind in kinds])


def append_measured(emulated: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return the emulated rows and then the measured ones, if there are any."""
    return emulated if measured.empty else pd.concat([emulated, measured], ignore_index=True)


def counts(frame: pd.DataFrame, column: str = "provenance") -> dict[str, int]:
    """Return how many rows of a frame are emulated, measured and published."""
    return {str(kind): int(count) for kind, count in frame[column].value_counts().items()}


def solo(records: Sequence[Recording], *, batch_sizes: Iterable[int]) -> pd.DataFrame:
    """Return Figs. 1 and 2 for recorded workloads alone, at 100 % and the top clock; columns as `motivation.solo`.

    The interval is two standard deviations of the repeats, NaN where there was no repeat.
    """
    if not records:
        return pd.DataFrame()
    tables = [_plain(one.table[is_reference(one.table)]).assign(gpu=one.gpu) for one in records]
    table = pd.concat(tables, ignore_index=True)
    spread = (table["time_std_s"] / table["time_s"]).where(table["repeats"] > 1)
    about = table.assign(sm_mhz=table["sm_mhz_reached"], anchored=True, uncertainty=spread, provenance="measured")
    return solo_columns(about[about["batch_size"].isin(list(batch_sizes))]).reset_index(drop=True)


def clocks(records: Sequence[Recording], workload: str, *, batch_sizes: Iterable[int]) -> pd.DataFrame:
    """Return Fig. 3 for one recorded workload alone, where two clocks or more were recorded.

    Columns as `motivation.clocks`.
    """
    parts = []
    for size, one in product(batch_sizes, records):
        table = _plain(one.table)
        is_alone = (table["co_runners"] == "") & (table["mps_pct"] == 100)
        found = table[is_alone & (table["workload"] == workload) & (table["batch_size"] == size)].sort_values("sm_mhz")
        if len(found) < 2:
            continue
        about = found.assign(
            requested_mhz=found["sm_mhz"],
            sm_mhz=found["sm_mhz_reached"],
            relative_time=found["time_s"] / found["time_s"].max(),
            gpu=one.gpu,
            provenance="measured",
        )
        parts.append(about[list(CLOCK_COLUMNS)])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def pairs(records: Sequence[Recording], chosen: Iterable[Sequence[str]] = PAIRS, *, batch_size: int) -> pd.DataFrame:
    """Return Fig. 4 for recorded pairs and each of the two alone; columns as `motivation.pairs`."""
    rows = []
    for one in records:
        table = _plain(one.table)
        table = table[(table["sm_mhz"] == card(one.gpu).max_mhz) & (table["mps_pct"] == 100)]
        times = table[table["batch_size"] == batch_size].set_index(["workload", "co_runners"])["time_s"].to_dict()
        for left, right in chosen:
            names = ((left, f"{right}:{batch_size}@100"), (right, f"{left}:{batch_size}@100"))
            alone_s = np.array([times.get((name, ""), np.nan) for name, _ in names])
            together_s = np.array([times.get(key, np.nan) for key in names])
            if not np.isnan([alone_s, together_s]).any():
                rows.append(pair_row(one.gpu, (left, right), alone_s, together_s) | {"provenance": "measured"})
    return pd.DataFrame(rows)


def samples(records: Iterable[Recording], thin: int = 1) -> list[Samples]:
    """Return every `thin`-th training sample of all records as one set; an empty list if there are none.

    Excluded are rows whose tasks were not all recorded alone, because features are measured while a task runs alone,
    and records with fewer than `ENOUGH` samples or `ENOUGH_WORKLOADS` workloads. Utilisations that a GPU did not
    record are modelled.
    """
    tables = [table for table in map(_trainable_rows, records) if len(table)]
    if not tables:
        return []
    with without_fill_warning():
        return [profile_samples(fill_missing(pd.concat(tables, ignore_index=True))).every(thin)]


def _trainable_rows(one: Recording) -> pd.DataFrame:
    with without_fill_warning():
        kept = one.table[covered_rows(one.table)].reset_index(drop=True)
    shared = kept[~is_reference(kept)]
    is_small = len(shared) < ENOUGH or shared["workload"].nunique() < ENOUGH_WORKLOADS
    return kept.iloc[:0] if is_small else kept


def inventory(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the contents of profile tables, one row a table; an extra row has a note if no GPU was recorded."""
    rows = [_contents(table) for table in tables]
    if not any(row["provenance"] == "measured" for row in rows):
        note = f"no GPU has been recorded; on a machine with one, run: {COMMAND}"
        rows.append({"gpu": "none", "provenance": "measured", "rows": 0, "note": note})
    counted = ["rows", "workloads", "alone", "shares", "clocks", "pairs", "larger_sets", "repeated"]
    frame = pd.DataFrame(rows, columns=["gpu", "provenance", *counted, "note"])
    return frame.assign(**{name: frame[name].fillna(0).astype(int) for name in counted}, note=frame["note"].fillna(""))


def _contents(table: pd.DataFrame) -> dict[str, object]:
    others = co_runner_counts(table)
    alone, top = others == 0, card(table["gpu"].iloc[0]).max_mhz
    emulated = table["provenance"].iloc[0] == "emulated"
    return {
        "gpu": table["gpu"].iloc[0],
        "provenance": table["provenance"].iloc[0],
        "rows": len(table),
        "workloads": table["workload"].nunique(),
        "alone": int((alone & (table["mps_pct"] == 100) & (table["sm_mhz"] == top)).sum()),
        "shares": int((alone & (table["mps_pct"] < 100)).sum()),
        "clocks": table["sm_mhz"].nunique(),
        "pairs": int((others == 1).sum()),
        "larger_sets": int((others > 1).sum()),
        "repeated": int((table["repeats"] > 1).sum()),
        "note": "emulated, for comparison" if emulated else "",
    }


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    found = table[(table["engine"] == "eager") & table["workload"].isin(list(models()))]
    return in_main_precision(found)
