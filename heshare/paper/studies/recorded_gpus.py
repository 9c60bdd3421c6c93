"""Results of recorded GPUs, drawn beside the emulated ones: parts of Figs. 1 to 4 and of Tables II and V."""

from collections.abc import Hashable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from heshare.ops.recording.budget_plan import PAIRS
from heshare.ops.recording.recordings import COMMAND, Recording
from heshare.paper.studies.motivation import CLOCK_COLUMNS, pair_row, solo_columns
from heshare.prediction.features import FEATURE_NAMES, TABLE_II, ReferenceFeatures, is_reference, profile_features
from heshare.prediction.forest import covered_rows
from heshare.prediction.samples import Samples, profile_samples
from heshare.profiles.missing_utilisation import fill_missing, untold
from heshare.profiles.schema import UTILISATIONS, co_runner_counts
from heshare.world.catalogue import gpu as card
from heshare.world.catalogue import models

ENOUGH, ENOUGH_WORKLOADS = 50, 5
"""The least numbers of samples and workloads of a record that predictors are trained on."""


def mark_measured(frame: pd.DataFrame, *, all_of_them: bool = False) -> pd.DataFrame:
    """Return a frame with measured GPUs marked in its column `gpu`, such as `H100 (measured)`.

    With `all_of_them` the emulated GPUs are marked too, such as `A100 (emulated)`.
    """
    kinds = zip(frame["gpu"], frame["provenance"], strict=True)
    return frame.assign(gpu=[f"{gpu} ({kind})" if all_of_them or kind == "measured" else gpu for gpu, kind in kinds])


def append_measured(emulated: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    return emulated if measured.empty else pd.concat([emulated, measured], ignore_index=True)


def counts(frame: pd.DataFrame, column: str = "provenance") -> dict[str, int]:
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
    rows: list[dict[Hashable, Any]] = []
    for size, one in product(batch_sizes, records):
        found = _plain(one.table)
        found = found[(found["workload"] == workload) & (found["batch_size"] == size)]
        found = found[(found["co_runners"] == "") & (found["mps_pct"] == 100)].sort_values("sm_mhz")
        if len(found) < 2:
            continue
        clocked = found.assign(requested_mhz=found["sm_mhz"], sm_mhz=found["sm_mhz_reached"])
        about = clocked.assign(
            gpu=one.gpu, provenance="measured", relative_time=found["time_s"] / found["time_s"].max()
        )
        rows += about[list(CLOCK_COLUMNS)].to_dict("records")
    return pd.DataFrame(rows)


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


def coverage_text(
    records: Sequence[Recording], frame: pd.DataFrame, *, of: int, what: str, shared: bool = False
) -> str:
    """Return the end of a caption with the part of the figure that each record covers; empty without records.

    `of` is the number of rows of a complete record; `shared` is whether tasks share the GPU in the figure.
    """
    parts = []
    for one in records:
        covered = 0 if frame.empty else int(((frame["gpu"] == one.gpu) & (frame["provenance"] == "measured")).sum())
        rest = "" if covered >= of else ", the rest not recorded"
        turns = "; without MPS, the tasks took turns" if shared and one.sharing == "time-slice" else ""
        parts.append(f" {one.label}: {covered} of {of} {what}{rest}{turns}.")
    return "".join(parts)


def trainable_rows(one: Recording) -> tuple[pd.DataFrame, str]:
    """Return the rows of a record that predictors can be trained on, and a sentence on the rows left out.

    All tasks of such a row were also recorded alone, because a task's features are measured while it runs alone. A
    record that is too small has no such rows.
    """
    with untold():
        kept = one.table[covered_rows(one.table)].reset_index(drop=True)
    samples = kept[~is_reference(kept)]
    if len(samples) < ENOUGH or samples["workload"].nunique() < ENOUGH_WORKLOADS:
        few = f"{len(samples)} samples of {samples['workload'].nunique()} workloads"
        return kept.iloc[:0], f" {one.label}: too small a record ({few}), left out."
    gone = len(one.table) - len(kept)
    lost = f", {gone} rows left out whose tasks were not all recorded alone" if gone else ""
    holes = [name for name in UTILISATIONS if kept[name].isna().any()]
    modelled = f" ({', '.join(holes)} modelled)" if holes else ""
    return kept, f" {one.label}: {len(samples)} samples{lost}{modelled}."


def samples(tables: Sequence[pd.DataFrame], thin: int = 1) -> list[Samples]:
    """Return every `thin`-th training sample of all records as one set; an empty list without records."""
    if not tables:
        return []
    with untold():
        return [profile_samples(fill_missing(pd.concat(tables, ignore_index=True))).every(thin)]


def feature_ranges(features: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return Table II with the range of each feature over the samples of each profile table, by the table's name."""
    shown = features
    for name, table in tables.items():
        with untold():
            known = ReferenceFeatures(table)
            values = profile_features(table[~is_reference(table)].reset_index(drop=True), known)[:, TABLE_II]
        least = dict(zip(FEATURE_NAMES, values.min(axis=0), strict=True))
        most = dict(zip(FEATURE_NAMES, values.max(axis=0), strict=True))
        columns = {f"{name}, least": features["name"].map(least), f"{name}, most": features["name"].map(most)}
        shown = shown.assign(**columns)
    return shown


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
        "note": "control: the forms are its truth, so its errors are those of the procedure" if emulated else "",
    }


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["precision"] == "fp32") & (table["engine"] == "eager") & table["workload"].isin(list(models()))]
