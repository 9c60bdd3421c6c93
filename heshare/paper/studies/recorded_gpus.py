"""Rows of Figs. 1 to 4 of a source's cards: as recorded, of the model fitted to the record, or emulated.

The figures have the workloads of Table IV alone; a record may have others. Also the samples of records, for predictors.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from heshare.ops.recording.budget_plan import PAIRS
from heshare.ops.recording.recordings import Recording
from heshare.paper.studies import motivation
from heshare.paper.studies.motivation import CLOCK_COLUMNS, pair_row, solo_columns
from heshare.paper.studies.sources import Source
from heshare.prediction.features import is_reference
from heshare.prediction.load import covered_rows
from heshare.prediction.samples import Samples, profile_samples
from heshare.profiles.missing_utilisation import fill_missing, without_fill_warning
from heshare.profiles.schema import in_main_precision
from heshare.world.catalogue import gpu as card
from heshare.world.catalogue import paper_models

ENOUGH, ENOUGH_WORKLOADS = 50, 5
"""The least numbers of samples and workloads of a record that predictors are trained on."""


def mark_provenance(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with GPUs that are not emulated marked in its column `gpu`, such as `H100 (measured)`."""
    kinds = zip(frame["gpu"], frame["provenance"], strict=True)
    return frame.assign(gpu=[gpu if kind == "emulated" else f"{gpu} ({kind})" for gpu, kind in kinds])


def alone(source: Source, *, batch_sizes: Iterable[int]) -> pd.DataFrame:
    """Return Figs. 1 and 2 for the cards of a source; columns as `motivation.solo`.

    What a record lacks is of the model fitted to it, with the interval of settings left out of the fit. Beside the
    default source are the records of this package.
    """
    sizes = list(batch_sizes)
    modelled: dict[str, Any] = {"batch_sizes": sizes, "constants": source.constants, "precision": source.precision}
    parts = [motivation.solo(source.emulated, **modelled)] if source.emulated else []
    for record in source.records:
        fitted = motivation.solo([record.gpu], **modelled)
        errors = {"uncertainty": source.spread("time"), "power_uncertainty": source.spread("power")}
        fitted = motivation.solo_columns(fitted.assign(**errors, provenance=source.provenance))
        parts += [_first(solo([record], batch_sizes=sizes), fitted, ["workload", "batch_size", "gpu"])]
    parts += [solo([record], batch_sizes=sizes) for record in source.beside]
    return pd.concat(parts, ignore_index=True)


def pairs_on(source: Source, *, batch_size: int) -> pd.DataFrame:
    """Return Fig. 4 for the cards of a source, as recorded or of the model; columns as `motivation.pairs`."""
    modelled: dict[str, Any] = {"batch_size": batch_size, "constants": source.constants, "precision": source.precision}
    parts = [motivation.pairs(source.emulated, **modelled)] if source.emulated else []
    for record in source.records:
        fitted = motivation.pairs([record.gpu], **modelled).assign(provenance=source.provenance)
        parts.append(_first(pairs([record], batch_size=batch_size), fitted, ["gpu", "pair"]))
    parts += [pairs([record], batch_size=batch_size) for record in source.beside]
    return pd.concat(parts, ignore_index=True)


def clocks_on(source: Source, workload: str, *, batch_sizes: Iterable[int], points: int) -> pd.DataFrame:
    """Return Fig. 3 for the cards of a source; recorded cards at their recorded clocks only."""
    sizes = list(batch_sizes)
    modelled: dict[str, Any] = {"batch_sizes": sizes, "constants": source.constants, "precision": source.precision}
    parts = [motivation.clocks(workload, source.emulated, points=points, **modelled)] if source.emulated else []
    for record in source.records:
        fitted = motivation.clocks(workload, [record.gpu], points=len(card(record.gpu).clocks_mhz), **modelled)
        fitted = fitted[fitted["requested_mhz"].isin(record.table["sm_mhz"].unique())]
        found = clocks([record], workload, batch_sizes=sizes)
        keys = ["workload", "batch_size", "gpu", "requested_mhz"]
        parts.append(_first(found, fitted.assign(provenance=source.provenance), keys))
    parts += [clocks(source.beside, workload, batch_sizes=sizes)]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def _first(recorded: pd.DataFrame, fitted: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the recorded rows, and the fitted ones of what was not recorded, in the order of the latter."""
    if recorded.empty:
        return fitted
    both = pd.concat([recorded, fitted], ignore_index=True).drop_duplicates(keys)
    order = {key: place for place, key in enumerate(fitted[keys].itertuples(index=False, name=None))}
    places = [order[key] for key in both[keys].itertuples(index=False, name=None)]
    return both.iloc[np.argsort(places, kind="stable")].reset_index(drop=True)


def counts(frame: pd.DataFrame, column: str = "provenance") -> dict[str, int]:
    """Return how many rows of a frame have each provenance."""
    return {str(kind): int(count) for kind, count in frame[column].value_counts().items()}


def solo(records: Sequence[Recording], *, batch_sizes: Iterable[int]) -> pd.DataFrame:
    """Return Figs. 1 and 2 for recorded workloads alone, at 100 % and the top clock; columns as `motivation.solo`.

    The interval is two standard deviations of the repeats, NaN where there was no repeat.
    """
    if not records:
        return pd.DataFrame()
    tables = [_plain(one.table[is_reference(one.table)]) for one in records]
    table = pd.concat(tables, ignore_index=True)
    spread = (table["time_std_s"] / table["time_s"]).where(table["repeats"] > 1)
    about = table.assign(sm_mhz=table["sm_mhz_reached"], anchored=True, uncertainty=spread)
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
                rows.append(pair_row(one.gpu, (left, right), alone_s, together_s) | {"provenance": one.provenance})
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


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    found = table[(table["engine"] == "eager") & table["workload"].isin(list(paper_models()))]
    return in_main_precision(found)
