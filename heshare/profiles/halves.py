"""The device model's forms held against a record: fitted on half of its settings, asked for the other half."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.calibration.forms import Setting, covers, fit
from heshare.devices.constants import Constants, default
from heshare.devices.model import co_run
from heshare.profiles.columns import parse_co_runners, write_co_runners
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

FORMS = ("inference batch size", "MPS percentage", "clock", "pairs", "three and more")
"""What a setting tests, by what it has that a reference row has not."""
SPLITS = 5
"""Random halves over which errors are taken."""
_KEYS = ["gpu", "provenance", "form", "quantity"]


def settings(table: pd.DataFrame) -> list[Setting]:
    """The rows of a profile table as the fit takes them."""
    return [
        Setting(_residents(row), float(row.sm_mhz_reached), float(row.time_s), float(row.power_w))
        for row in _tuples(table)
    ]


def form(table: pd.DataFrame) -> pd.Series:
    """Which of `FORMS` each row tests."""
    others = table["co_runners"].map(lambda text: len(text.split("+")) if text else 0)
    top = table["gpu"].map({name: find_gpu(name).max_mhz for name in table["gpu"].unique()})
    alone = np.select([table["sm_mhz"] < top, table["mps_pct"] < 100], ["clock", "MPS percentage"], FORMS[0])
    return pd.Series(np.select([others == 0, others == 1], [alone, "pairs"], FORMS[-1]), index=table.index)


def halve(table: pd.DataFrame, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows are to be fitted, shape (n,): every other one of each form, drawn at random.

    All rows of one set of tasks go to the same half. Inference batch sizes are halved within each workload, and a
    workload that was observed at one size only is fitted.
    """
    forms = form(table)
    known = [write_co_runners(_residents(row)) + f"/{row.sm_mhz}" for row in _tuples(table)]
    groups = forms.where(forms != FORMS[0], forms + " of " + table["workload"])
    fitted = np.zeros(len(table), dtype=bool)
    for name in sorted(groups.unique()):
        members = np.flatnonzero((groups == name).to_numpy())
        sets = sorted({known[at] for at in members})
        first = 0 if name.startswith(FORMS[0]) else int(rng.integers(2))
        chosen = {sets[at] for at in rng.permutation(len(sets))[first::2]}
        fitted[members] = [known[at] in chosen for at in members]
    return fitted


def points(table: pd.DataFrame, *, seed: int = 0, splits: int = SPLITS) -> pd.DataFrame:
    """What the fitted and the shipped model say of settings that were not fitted.

    Args:
        table: a record of one GPU in FP32; other precisions are left out.
        seed: of the halves.
        splits: how many random halves.

    Returns:
        Two rows a left-out setting, time and power: split, gpu, provenance, form, workload, setting, quantity (`time`
        or `power`), measured, fitted and shipped (s or W). Settings with a workload whose time alone was not fitted
        are left out.
    """
    table = table[table["precision"] == "fp32"].reset_index(drop=True)
    gpu, forms, idle_w = find_gpu(table["gpu"].iloc[0]), form(table), float(table["idle_w"].mean())
    every = settings(table)
    rows: list[dict[str, object]] = []
    for split, child in enumerate(np.random.SeedSequence(seed).spawn(splits)):
        half = halve(table, np.random.default_rng(child))
        constants = fit(gpu, [one for one, kept in zip(every, half, strict=True) if kept], idle_w)
        for at in np.flatnonzero(~half):
            if covers(constants, gpu, every[at].residents):
                known = {"split": split, "gpu": gpu.name, "provenance": table["provenance"].iloc[at]}
                rows += _answers(gpu, constants, every[at], int(table["sm_mhz"].iloc[at]), {**known, "form": forms[at]})
    return pd.DataFrame(rows, columns=["split", *_KEYS[:3], "workload", "setting", "quantity", *_ANSWERS])


_ANSWERS = ("measured", "fitted", "shipped")


def _answers(
    gpu: Gpu, constants: Constants, one: Setting, sm_mhz: int, known: dict[str, object]
) -> list[dict[str, object]]:
    fitted, shipped = (co_run(gpu, one.residents, sm_mhz, constants=each) for each in (constants, default()))
    setting = f"{one.residents[0]}" + "".join(f" + {other}" for other in one.residents[1:]) + f" at {sm_mhz} MHz"
    base = {**known, "workload": one.residents[0].workload.model, "setting": setting}
    times = (one.time_s, fitted.tasks[0].time_s, shipped.tasks[0].time_s)
    powers = (one.power_w, fitted.power_w, shipped.power_w)
    return [
        {**base, "quantity": name, **dict(zip(_ANSWERS, values, strict=True))}
        for name, values in (("time", times), ("power", powers))
    ]


def errors(found: pd.DataFrame) -> pd.DataFrame:
    """Errors by form, % of what was measured; `found` as from `points`.

    Returns:
        One row for each GPU, form and quantity: gpu, provenance, form, quantity, n, then mean and 90th percentile of
        |error| of the fitted model (fitted_pct, fitted_p90_pct) and of the shipped one with nothing fitted
        (shipped_pct, shipped_p90_pct).
    """
    rows = []
    for key, part in found.groupby(_KEYS, sort=False):
        row: dict[str, object] = {**dict(zip(_KEYS, key, strict=True)), "n": len(part)}
        for name in ("fitted", "shipped"):
            off = 100 * (part[name] / part["measured"] - 1).abs()
            row |= {f"{name}_pct": round(float(off.mean()), 3), f"{name}_p90_pct": round(float(off.quantile(0.9)), 3)}
        rows.append(row)
    table = pd.DataFrame(rows)
    order = table["form"].map({name: at for at, name in enumerate(FORMS)})
    by = table.assign(at=order, late=table["quantity"] == "power").sort_values(["gpu", "late", "at"], kind="stable")
    return by.drop(columns=["at", "late"]).reset_index(drop=True)


def activity(table: pd.DataFrame) -> pd.DataFrame:
    """Power against how busy the SMs were, at the top clock.

    Returns:
        One row a setting: gpu, provenance, workload, together (how many tasks), activity_pct, told_by (`card`: the SM
        utilisation that was recorded; `model`: the device model's, where the card has no such counter), power_w,
        idle_w.
    """
    top = find_gpu(table["gpu"].iloc[0]).max_mhz
    rows = table[(table["sm_mhz"] == top) & (table["precision"] == "fp32")].reset_index(drop=True)
    gpu = find_gpu(rows["gpu"].iloc[0])
    told = np.where(rows["sm_util_pct"].notna(), "card", "model")
    told = np.where(rows["provenance"] == "emulated", "model", told)
    modelled = [sum(task.sm_util_pct for task in co_run(gpu, one.residents).tasks) for one in settings(rows)]
    return pd.DataFrame(
        {
            "gpu": rows["gpu"],
            "provenance": rows["provenance"],
            "workload": rows["workload"],
            "together": rows["co_runners"].map(lambda text: 1 + len(text.split("+")) if text else 1),
            "activity_pct": rows["sm_util_pct"].fillna(pd.Series(np.minimum(modelled, 100.0))),
            "told_by": told,
            "power_w": rows["power_w"],
            "idle_w": rows["idle_w"],
        }
    )


def _residents(row: Any) -> tuple[Resident, ...]:
    target = Resident(Workload(row.workload, int(row.batch_size), row.precision, row.engine), int(row.mps_pct))
    return (target, *parse_co_runners(row.co_runners, precision=row.precision, engine=row.engine))


def _tuples(table: pd.DataFrame) -> list[Any]:
    return list(table.itertuples(index=False))
