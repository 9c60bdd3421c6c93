"""Validation of the device model's forms on one GPU's profiles: fitted to half of its settings, tested on the rest."""

from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants, default
from heshare.devices.device_model import co_run
from heshare.lab.calibration.measurements import as_default, records
from heshare.lab.calibration.record_fit import ObservedSetting, covers, fit_record, observed_settings
from heshare.profiles.schema import co_runner_counts, in_main_precision, residents_of, write_co_runners
from heshare.shared.arrays import BoolArray
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu

FORMS = ("inference batch size", "MPS percentage", "clock", "pairs", "three and more")
"""The form that a setting tests, by how it differs from a reference row."""
SPLITS = 5
"""Random halves over which errors are taken."""
_KEYS = ["gpu", "provenance", "form", "quantity"]
_VALUES = ("measured", "fitted", "shipped")
_ERRORS = ("fitted_pct", "shipped_pct")
_COLUMNS = ["split", *_KEYS[:3], "workload", "setting", "quantity", *_VALUES, "inside"]


def form_tested(table: pd.DataFrame) -> pd.Series:
    others = co_runner_counts(table)
    top = table["gpu"].map({name: find_gpu(name).max_mhz for name in table["gpu"].unique()})
    alone = np.select([table["sm_mhz"] < top, table["mps_pct"] < 100], ["clock", "MPS percentage"], FORMS[0])
    return pd.Series(np.select([others == 0, others == 1], [alone, "pairs"], FORMS[-1]), index=table.index)


def fitted_half(table: pd.DataFrame, rng: np.random.Generator) -> BoolArray:
    """Return which rows are to be fitted, shape (n,): every other one of each form, drawn at random.

    All rows of one set of tasks go to the same half. Inference batch sizes are halved within each workload, and a
    workload that was observed at one size only is fitted.
    """
    forms = form_tested(table)
    sets = [write_co_runners(residents_of(row)) + f"/{row.sm_mhz}" for row in records(table)]
    groups = forms.where(forms != FORMS[0], forms + " of " + table["workload"])
    fitted = np.zeros(len(table), dtype=bool)
    for name in sorted(groups.unique()):
        rows = np.flatnonzero((groups == name).to_numpy())
        ordered = sorted({sets[row] for row in rows})
        first = 0 if name.startswith(FORMS[0]) else int(rng.integers(2))
        chosen = {ordered[index] for index in rng.permutation(len(ordered))[first::2]}
        fitted[rows] = [sets[row] in chosen for row in rows]
    return fitted


def left_out_points(table: pd.DataFrame, *, seed: int = 0, splits: int = SPLITS) -> pd.DataFrame:
    """Return what the fitted and the shipped model predict for settings of one GPU that were not fitted.

    Only rows in the main precision are kept, FP32 or TF32. `splits` random halves are fitted, drawn with `seed`.
    Settings with a workload whose time alone was not fitted are left out.

    Returns:
        Two rows a left-out setting, time and power: split, gpu, provenance, form, workload, setting, quantity (`time`
        or `power`), measured, fitted and shipped (s or W), and inside: whether the shipped model's 90 % interval holds
        what was measured.
    """
    table = as_default(in_main_precision(table)).reset_index(drop=True)
    gpu, forms, idle_w = find_gpu(table["gpu"].iloc[0]), form_tested(table), float(table["idle_w"].mean())
    settings = observed_settings(table)
    rows: list[dict[str, object]] = []
    for split, child in enumerate(np.random.SeedSequence(seed).spawn(splits)):
        half = fitted_half(table, np.random.default_rng(child))
        constants = fit_record(gpu, [setting for setting, kept in zip(settings, half, strict=True) if kept], idle_w)
        for row in np.flatnonzero(~half):
            if covers(constants, gpu, settings[row].residents):
                keys = {"split": split, "gpu": gpu.name, "provenance": table["provenance"].iloc[row]}
                mhz = int(table["sm_mhz"].iloc[row])
                rows += _point_rows(gpu, constants, settings[row], mhz, {**keys, "form": forms[row]})
    return pd.DataFrame(rows, columns=_COLUMNS)


def _point_rows(
    gpu: Gpu, constants: Constants, setting: ObservedSetting, sm_mhz: int, keys: dict[str, object]
) -> list[dict[str, object]]:
    residents = setting.residents
    fitted, shipped = (co_run(gpu, residents, sm_mhz, constants=model) for model in (constants, default()))
    text = " + ".join(map(str, residents)) + f" at {sm_mhz} MHz"
    base = {**keys, "workload": residents[0].workload.model, "setting": text}
    times = (setting.time_s, fitted.tasks[0].time_s, shipped.tasks[0].time_s)
    powers = (setting.power_w, fitted.power_w, shipped.power_w)
    known = (
        ("time", times, shipped.tasks[0].uncertainty_parts),
        ("power", powers, shipped.power_uncertainty_parts),
    )
    return [
        {**base, "quantity": name, **dict(zip(_VALUES, values, strict=True)), "inside": low <= values[0] <= high}
        for name, values, parts in known
        for low, high in [parts.interval(values[-1])]
    ]


def errors_by_form(points: pd.DataFrame) -> pd.DataFrame:
    """Return errors by form, % of what was measured; `points` as from `left_out_points`.

    Returns:
        One row for each GPU, form and quantity: gpu, provenance, form, quantity, n, then mean and 90th percentile of
        |error| of the fitted model (fitted_pct, fitted_p90_pct) and of the shipped one with nothing fitted
        (shipped_pct, shipped_p90_pct), and how many of its 90 % intervals hold what was measured (inside_pct).
    """
    rows = []
    for key, part in _with_errors(points).groupby(_KEYS, sort=False):
        row: dict[str, object] = {**dict(zip(_KEYS, key, strict=True)), "n": len(part)}
        for name in _ERRORS:
            p90 = float(part[name].quantile(0.9))
            row |= {name: round(float(part[name].mean()), 3), name.replace("_pct", "_p90_pct"): round(p90, 3)}
        rows.append(row | {"inside_pct": round(float(part["inside_pct"].mean()), 1)})
    rows.sort(key=lambda row: (row["gpu"], row["quantity"] == "power", FORMS.index(str(row["form"]))))
    return pd.DataFrame(rows)


def errors_by_gpu(points: pd.DataFrame) -> dict[str, Any]:
    """Return median |error| (fitted_pct, shipped_pct) and inside_pct of each measured GPU, by time and power."""
    found = _with_errors(points[points["provenance"] == "measured"])
    how = {**dict.fromkeys(_ERRORS, "median"), "inside_pct": "mean"}
    return {
        str(gpu): part.groupby("quantity").agg(how).to_dict("index") for gpu, part in found.groupby("gpu", sort=False)
    }


def _with_errors(points: pd.DataFrame) -> pd.DataFrame:
    errors = {f"{name}_pct": 100 * (points[name] / points["measured"] - 1).abs() for name in _VALUES[1:]}
    return points.assign(**errors, inside_pct=100.0 * points["inside"])
