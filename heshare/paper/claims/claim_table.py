"""The table of the paper's claims: the paper's value, the measured value and the verdict of each."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from heshare.paper import tables
from heshare.paper.claims import claims_page, plain_words
from heshare.paper.claims.verdicts import (
    EXCEEDS,
    FEWEST,
    NOT_YET,
    REPRODUCED,
    UNTESTABLE,
    VERDICTS,
    Claim,
    paper_claims,
    verdict,
)
from heshare.paper.provenance import sidecar as provenance
from heshare.paper.provenance.run_record import CUSTOM
from heshare.shared import files
from heshare.shared.errors import InputError

COLUMNS = (
    "id", "part", "where", "statement", "unit", "paper", "measured", "low", "high", "interval", "n", "of", "verdict",
    "placed", "placed_verdict", "best", "best_verdict", "why", "source", "notebook", "provenance", "details",
)  # fmt: skip
BOOTSTRAP, OVER_SIZES, OF_MODEL, NO_INTERVAL = "95 % bootstrap", "range", claims_page.OF_MODEL, "none"
"""Kinds of interval."""
NONE_RUN = "none run"
_PROFILES = ("paper", "smoke", CUSTOM)
UNITS = {"reduction": "%", "error": "%", "limit": "%", "ratio": "x", "floor": "x", "value": "x", "ordering": ""}
"""Unit of the measured value by the kind of claim; that of an ordering is given with it."""


def evaluate_claim(
    claim: Claim,
    *,
    measured: float = math.nan,
    low: float = math.nan,
    high: float = math.nan,
    n: int,
    of: str = "seeds",
    interval: str = BOOTSTRAP,
    unit: str = "",
    provenance: str,
    profile: str,
    note: str = "",
    why: str = "",
    source: str = "",
    holds: Mapping[str, bool] | None = None,
    forms: Mapping[str, tuple[float, float, float]] | None = None,
    testable: bool = True,
) -> dict[str, object]:
    """Return one evaluated claim as a row, with its verdict.

    Args:
        claim: the claim.
        measured: the value, in the claim's unit.
        low: lower end of its interval.
        high: upper end of its interval.
        n: number of values behind the interval.
        of: what these values are.
        interval: the kind of interval, one of `BOOTSTRAP`, `OVER_SIZES`, `OF_MODEL` and `NO_INTERVAL`.
        unit: what the measured value of an ordering is.
        provenance: emulated, measured or published.
        profile: the notebook profile that made it.
        note: details, from the data.
        why: the result as one plain sentence of at most `plain_words.LONGEST` characters; by default a general one.
        source: where the value is published, as from `sources.source`.
        holds: the parts of an ordering and whether each holds.
        forms: value, low and high against a rival that is `placed` like HeShare, or at its `best` settings.
        testable: False where an assumption alone decides the value, so that it does not test the claim, or where the
            platform lacks what the claim is about; then there need be no value.

    Raises:
        InputError: a number that is needed is missing, the measured value lies outside its own interval, or the
            sentence is too long.
    """
    parts = dict(holds or {})
    if testable or not math.isnan(measured):
        _check(claim, measured, low, high, parts)
    why = why or plain_words.sentence(claim, measured, parts, {form: size[0] for form, size in (forms or {}).items()})
    if len(why) > plain_words.LONGEST:
        raise InputError(why, f"at most {plain_words.LONGEST} characters", "Shorten it.", column=f"claim {claim.id}")
    independent = n if interval == BOOTSTRAP else FEWEST
    found: dict[str, object] = {}
    for form, (value, least, most) in (forms or {}).items():
        found |= {form: value, f"{form}_verdict": verdict(claim, value, least, most, n=independent)}
    parts_text = "; ".join(f"{'holds' if good else 'FAILS'}: {text}" for text, good in parts.items())
    return {
        "id": claim.id,
        "part": claim.part,
        "unit": unit or UNITS[claim.kind],
        "measured": measured,
        "low": low,
        "high": high,
        "interval": interval,
        "n": n,
        "of": of,
        "verdict": verdict(claim, measured, low, high, n=independent, holds=parts) if testable else UNTESTABLE,
        **found,
        "why": why,
        "source": source,
        "provenance": provenance,
        "profile": profile,
        "details": " ".join(filter(None, [f"{parts_text}." if parts_text else "", note])),
    }


def _check(claim: Claim, measured: float, low: float, high: float, parts: Mapping[str, bool]) -> None:
    ordering = claim.kind == "ordering"
    if (ordering and not parts) or (not ordering and not low <= measured <= high):
        raise InputError(
            f"measured {measured}, interval {low} to {high}, parts {dict(parts)}",
            "the parts of an ordering, or a value inside its interval",
            "Correct what the notebook passes.",
            column=f"claim {claim.id}",
        )


def explain_failure(claim: Claim, why: str, *, profile: str) -> dict[str, object]:
    """Return a row with the reason why a claim of another notebook fails; `merge` appends it to the claim's details."""
    return {"id": claim.id, "part": claim.part, "profile": profile, "reason": why}


def merge(folder: Path) -> pd.DataFrame:
    """Return every claim of the paper with its result from the notebooks' files in `folder`, or "not yet".

    Reasons (`explain_failure`) are appended to the details of claims that were evaluated and fall short. Rows of
    another profile than the one that is reported (`reported_profile`) are not counted: their claims are "not yet".

    Raises:
        InputError: a file of claims names a claim that does not exist.
    """
    found: dict[tuple[str, str], dict[str, object]] = {}
    reasons: dict[tuple[str, str], str] = {}
    profile = reported_profile(folder)
    for path, row in _found(folder):
        key = (str(row["id"]), str(row["part"]))
        if key not in paper_claims():
            raise InputError(
                f"claim {key}",
                "a claim of data/paper_claims.csv",
                "Remove this stale file and run the notebooks again.",
                file=path,
            )
        counted = row["profile"] == profile
        if "reason" in row:
            reasons |= {key: str(row["reason"])} if counted else {}
        elif not counted:
            other = f"The result of {path.stem} is of the profile {row['profile']}, not {profile}: not counted."
            found.setdefault(key, {"verdict": NOT_YET, "why": other})
        else:
            found[key] = {**row, "notebook": path.stem}
    rows = []
    for key, claim in paper_claims().items():
        result = found.get(key, {"verdict": NOT_YET, "why": "Nothing here measures this so far."})
        if key in reasons and result["verdict"] not in (NOT_YET, REPRODUCED, EXCEEDS):
            result = {**result, "details": f"{result['details']} Why: {reasons[key]}"}
        rows.append({**asdict(claim), **result})
    table = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    numbers = dict.fromkeys(("measured", "low", "high", "placed", "best"), float)
    return table.astype({**numbers, "n": "Int64"})


def _found(folder: Path) -> list[tuple[Path, dict[str, object]]]:
    """Return the rows that the notebooks wrote, with their files."""
    paths = sorted((folder / "claims").glob("*.json"))
    return [(path, row) for path in paths for row in json.loads(path.read_text(encoding="utf-8"))]


def reported_profile(folder: Path) -> str:
    """Return the notebook profile whose results are reported of a folder: paper, smoke, or else custom; or "none run".

    Custom are runs by hand, with other parameters, or of code that is not the commit's.
    """
    there = {str(row["profile"]) for _, row in _found(folder)}
    return next((profile for profile in _PROFILES if profile in there), NONE_RUN)


def left_out(folder: Path) -> str:
    """Return the notebooks whose claims are not counted: `05_comparison (custom)`; empty if there are none."""
    reported = reported_profile(folder)
    others = {f"{path.stem} ({row['profile']})" for path, row in _found(folder) if row["profile"] != reported}
    return ", ".join(sorted(others))


def profile_text(folder: Path) -> str:
    """Return the sentences of a caption on the profile that is reported, and on what is not counted."""
    profile, others = reported_profile(folder), left_out(folder)
    about = f"Notebook profile: {profile}."
    if profile == CUSTOM:
        about += " Custom: run by hand, with other parameters or with other code; these are not the paper's results."
    return about + (f" Not counted, because of another profile: {others}." if others else "")


def count_text(table: pd.DataFrame) -> str:
    """Return how many claims have each verdict, as text."""
    counts = table["verdict"].value_counts()
    return ", ".join(f"{counts[word]} {word}" for word in VERDICTS if word in counts)


def write(folder: Path) -> pd.DataFrame:
    """Write `claims.csv`, `claims.md` and `claims.json` into `folder` and return the table."""
    table = merge(folder)
    origins = table["provenance"].dropna()
    counts = {str(kind): int(count) for kind, count in origins.value_counts().sort_index().items()}
    profile = reported_profile(folder)
    caption = (
        "The statements of data/paper_claims.csv, of the paper and of the other systems, with verdicts. "
        f"{profile_text(folder)} Reductions and errors are in percent; a reduction is written with a minus."
    )
    if profile == "smoke":
        caption += (
            " The profile smoke is a test of the machinery: its sizes are far too small for its verdicts to count."
        )
    files.write_text(folder / "claims.csv", tables.to_csv(table))
    files.write_text(folder / "claims.md", claims_page.page(table, caption, count_text(table)))
    text = provenance.sidecar_json(
        name="claims",
        caption=caption,
        rows=counts or {"published": 0},
        suffixes=provenance.TABLE_SUFFIXES,
        notebook=None,
        parameters={"profile": profile},
    )
    files.write_text(folder / "claims.json", text)
    return table
