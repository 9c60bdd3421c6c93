"""What `advise` says of public measurements of shared cards, as `docs/advise_record.csv` has it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import heshare as hs
from heshare.cli import app
from heshare.lab.advice.advice import case_of
from heshare.lab.advice.options import Base, Range, Way, alone, option, ways
from heshare.shared import files
from heshare.world import catalogue
from heshare.world.workload import Resident

DOCS = Path(__file__).resolve().parents[4] / "docs"
PAGE, RECORD = DOCS / "advise.md", DOCS / "advise_record.csv"
WAYS = {"time-slice": "time slices", "mps": "MPS", "mig": "MIG", "alone": "alone"}
QUANTITIES = {"speed": "speed", "energy": "energy", "per_s": "iterations/s", "energy_j": "J an iteration"}
YOLOS = "yolos=per_s:11.36,sm:37"
"""YOLOS-small alone: 88 ms a request. By the model these SMs take 342 ms in a MIG instance of one slice."""
SIZES = 8, 32


def of_advice() -> pd.DataFrame:
    table = pd.read_csv(files.data("calibration", "advice.csv"), keep_default_na=False)
    share = table["mps_pct"].astype(str)
    return table.assign(share=share, shown=table["way"].map(WAYS) + (" " + share + " %").where(share != "", ""))


def of_copies() -> pd.DataFrame:
    """Return copies of YOLOS-small: their work a second over that of one on the whole card."""
    table = pd.read_csv(files.data("calibration", "copies_by_sharing.csv"))
    way = table["sharing"].str.partition("-")[0].replace("time", "time-slice")
    alone_s = table.groupby(way)["time_s"].transform("first").where(way != "mig", table["time_s"].iloc[0])
    table = table.assign(
        case="nos YOLOS-small",
        workloads=table["copies"].astype(str) + "x" + YOLOS,
        precision="mixed",
        way=way,
        share=way.map({"mps": "100", "mig": "1g"}).fillna(""),
        shown=way.map({"mps": "MPS 100 %", "mig": "MIG 1g each", "time-slice": "time slices"}),
        quantity="speed",
        measured=table["copies"] * alone_s / table["time_s"],
    )
    return table[table["copies"] > 1]


def of_batch_sizes() -> pd.DataFrame:
    """Return networks that PyTorch ran alone at both `SIZES`: samples a second at the larger over the smaller one."""
    table = pd.read_csv(files.data("calibration", "times.csv"))
    whole = (table["mps_pct"].fillna(100) == 100) & table["sm_mhz"].isna() & (table["processes"] == 1)
    known = table["workload"].isin(catalogue.models()) & table["gpu"].isin(catalogue.gpus())
    table = table[whole & known & table["framework"].str.contains("PyTorch") & (table["engine"] == "eager")]
    keys = ["gpu", "workload", "precision", "engine", "source"]
    wide = table.pivot_table(index=keys, columns="batch_size", values="time_s").reset_index()
    small, large = SIZES
    wide = wide.assign(measured=large / small * wide[small] / wide[large])
    return wide.dropna(subset="measured").assign(
        case=wide["source"].str.partition("@")[0].str.partition("/")[2],
        workloads=wide["workload"] + f":{small}",
        way="alone",
        share=str(large),
        shown=f"alone at batch {large}",
        quantity="speed",
    )


@cache
def rows() -> pd.DataFrame:
    return pd.concat([of_advice(), of_copies(), of_batch_sizes()], ignore_index=True)


@cache
def advice(gpu: str, workloads: str, precision: str, engine: str):
    return hs.advise(gpu, workloads.split(), precision=precision, engine=engine)


def said(row) -> Range:
    """Return what the advice says of a row, relative to one after the other as given, all at the default clock."""
    case = case_of(row.gpu, row.workloads.split(), precision=row.precision, engine=row.engine)
    workloads, variants = case.workloads, case.variants()
    if row.way == "alone":
        way = alone([replace(one, batch_size=int(row.share)) for one in workloads])
    elif row.way == "mps":
        way = Way("mps", tuple(Resident(one, int(row.share)) for one in workloads))
    elif row.share:
        way = Way("mig", tuple(Resident(one, sharing=f"mig-{row.share}") for one in workloads))
    else:
        found = ways(case.gpu, workloads, case.needs_mib(workloads), variants[0])
        way = next(each for each in found if each.name == row.way)
    answer = option(case.gpu, way, None, variants, Base(workloads))
    if row.quantity in ("speed", "energy"):
        return getattr(answer, row.quantity)
    if row.quantity == "energy_j":
        return Range(*(workloads[0].batch_size * joules for joules in answer.energy_j[0]))
    value, low, high = (len(workloads) / time_s for time_s in answer.time_s[0])
    return Range(value, high, low)


@cache
def record() -> pd.DataFrame:
    """Return the record: each case with what is said of it today, and what was measured."""
    lines = []
    for row in rows().itertuples():
        found = said(row)
        what = " + ".join(each.partition("=")[0] for each in row.workloads.split())
        line = {"case": row.case, "card": row.gpu, "workloads": what, "precision": row.precision, "way": row.shown}
        numbers = {"advise": found.value, "low": found.low, "high": found.high, "measured": row.measured}
        line |= {"quantity": QUANTITIES[row.quantity]} | {key: f"{value:.3g}" for key, value in numbers.items()}
        line["inside"] = "yes" if found.low <= row.measured <= found.high else "no"
        answer = advice(row.gpu, row.workloads, row.precision, row.engine)
        sentence = str(answer.alone[0]).splitlines()[-1].strip() if row.way == "alone" else answer.recommendation
        lines.append(line | {"sentence": sentence})
    return pd.DataFrame(lines)


@pytest.mark.slow
def test_record() -> None:
    """The record has each case with the prediction of today, and three of four intervals hold what was measured."""
    table = record()
    assert table.groupby(["case", "card"]).ngroups >= 8
    shown = pd.read_csv(RECORD, dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(shown, table.astype(str))
    for _, group in table.groupby(rows()["way"]):
        assert (group["inside"] == "yes").mean() >= 0.6
    assert (table["inside"] == "yes").mean() >= 0.75


@pytest.mark.slow
def test_commands():
    """The commands of the page run as documented."""
    shell = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("heshare ")]
    lines = [line.partition("  #")[0].split()[1:] for line in shell]
    assert len(lines) >= 4
    for words in lines:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (words, done.output)


@pytest.mark.parametrize(
    ("gpu", "workloads", "engine", "pays"),
    [
        ("H200", "5xhiggs=per_s:50.5,sm:20.1", "eager", True),
        ("H100", "2xasr=per_s:104,w:155,sm:6", "eager", True),
        ("H100", "2xmoss=per_s:2.5,w:500,sm:64", "eager", True),
        ("A100", "2xresnet50:8", "eager", True),
        ("V100-SXM2", "resnet50:16 ssd=per_s:22.93,w:290.75,sm:95", "tensorrt", False),
        # On an H100 this server lost by sharing; by its SM activity it should not.
        ("H100", "2xhiggs=per_s:20.35,sm:29", "eager", True),
    ],
)
def test_sharing_pays(gpu, workloads, engine, pays):
    """The advice says whether sharing pays as it was measured."""
    assert (advice(gpu, workloads, "mixed", engine).best.way.name != "alone") is pays
