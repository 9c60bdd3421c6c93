"""The table of the paper's claims: the paper's value, the measured value and the verdict of each.

Verdicts are *reproduced* (the interval reaches the paper's value or beats it), *direction* (same sign, smaller),
*not reproduced*, *not testable*, and *not yet* (no notebook evaluates the claim so far).
"""

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from heshare import files
from heshare.errors import InputError
from heshare.experiments import provenance, tables

COLUMNS = (
    "id", "where", "statement", "paper", "measured", "low", "high", "n", "verdict", "provenance", "note",
)  # fmt: skip
REPRODUCED, DIRECTION, FAILED = "reproduced", "direction", "not reproduced"
UNTESTABLE, NOT_YET = "not testable", "not yet"
VERDICTS = (REPRODUCED, DIRECTION, FAILED, UNTESTABLE, NOT_YET)


@dataclass(frozen=True, slots=True)
class Claim:
    """One checkable statement, a row of `data/paper_claims.csv`.

    Attributes:
        id: such as `H3`.
        part: which of the claim's numbers, such as `energy against Random`; empty where it has only one.
        where: the figure or table of the paper.
        statement: the statement, in words.
        paper: the paper's value, as text.
        kind: `reduction` (percent, below zero), `ratio` (above 1), `error` (percent, ours), `rival error` (percent, of
            a technique that the paper finds poor) or `ordering`.
        value: the paper's number; NaN for an ordering.
    """

    id: str
    part: str
    where: str
    statement: str
    paper: str
    kind: str
    value: float


@cache
def paper_claims() -> dict[tuple[str, str], Claim]:
    """Return every claim by (id, part), in the order of `data/paper_claims.csv`."""
    with files.data("paper_claims.csv").open(encoding="utf-8", newline="") as stream:
        rows: list[dict[str, Any]] = list(csv.DictReader(stream))
    claims = [Claim(**{**row, "value": float(row["value"] or "nan")}) for row in rows]
    return {(claim.id, claim.part): claim for claim in claims}


def verdict(
    claim: Claim, measured: float, low: float, high: float, *, against: float = math.nan, holds: Mapping[str, bool]
) -> str:
    """Return the verdict on one claim from a measured value and the ends of its 95 % interval, in the claim's unit.

    Args:
        claim: the claim.
        measured: the value.
        low: lower end of its interval.
        high: upper end of its interval.
        against: for errors, the error that it is compared with: the best rival's for `error`, the forest's for
            `rival error`.
        holds: for an ordering, its parts and whether each holds.
    """
    if claim.kind == "ordering":
        kept = list(holds.values())
        return REPRODUCED if kept and all(kept) else DIRECTION if any(kept) else FAILED
    reached, same = {
        "reduction": (low <= claim.value, high < 0),
        "ratio": (high >= claim.value, low > 1),
        "error": (low <= claim.value, measured < against),
        "rival error": (high >= claim.value, measured > against),
    }[claim.kind]
    return REPRODUCED if reached else DIRECTION if same else FAILED


def evaluate_claim(
    claim: Claim,
    *,
    measured: float = math.nan,
    low: float = math.nan,
    high: float = math.nan,
    n: int,
    provenance: str,
    profile: str,
    note: str = "",
    against: float = math.nan,
    holds: Mapping[str, bool] | None = None,
    testable: bool = True,
) -> dict[str, object]:
    """Return one evaluated claim as a row, with its verdict; see `verdict` for the arguments not named here.

    Args:
        claim: the claim.
        measured: the value, in the claim's unit.
        low: lower end of its 95 % interval.
        high: upper end of its 95 % interval.
        n: number of values behind the interval.
        provenance: emulated, measured or published.
        profile: the notebook profile that made it.
        note: reasons, from the data.
        against: see `verdict`.
        holds: see `verdict`.
        testable: False where an assumption alone decides the value, so that it does not test the claim.

    Raises:
        InputError: a number that is needed is missing, or the measured value lies outside its own interval.
    """
    parts = dict(holds or {})
    ordering = claim.kind == "ordering"
    if (ordering and not parts) or (not ordering and not low <= measured <= high):
        raise InputError(
            f"measured {measured}, interval {low} to {high}, parts {parts}",
            "the parts of an ordering, or a value inside its interval",
            "Correct what the notebook passes.",
            column=f"claim {claim.id}",
        )
    parts_text = "; ".join(f"{'holds' if good else 'FAILS'}: {text}" for text, good in parts.items())
    return {
        "id": claim.id,
        "part": claim.part,
        "measured": measured,
        "low": low,
        "high": high,
        "n": n,
        "verdict": verdict(claim, measured, low, high, against=against, holds=parts) if testable else UNTESTABLE,
        "provenance": provenance,
        "profile": profile,
        "note": " ".join(filter(None, [f"{parts_text}." if parts_text else "", note])),
    }


def explain_failure(claim: Claim, why: str, *, profile: str) -> dict[str, object]:
    """Return a row with the reason why a claim of another notebook fails; `merge` appends it to the claim's note."""
    return {"id": claim.id, "part": claim.part, "profile": profile, "why": why}


def merge(folder: Path) -> pd.DataFrame:
    """Return every claim of the paper with its result from the notebooks' files in `folder`, or "not yet".

    Reasons (`explain_failure`) are appended to the notes of claims that were evaluated but not reproduced.

    Raises:
        InputError: a file of claims names a claim that does not exist.
    """
    found: dict[tuple[str, str], dict[str, object]] = {}
    reasons: dict[tuple[str, str], str] = {}
    for path, row in _found(folder):
        key = (str(row["id"]), str(row["part"]))
        if key not in paper_claims():
            raise InputError(
                f"claim {key}",
                "a claim of data/paper_claims.csv",
                "Remove this stale file and run the notebooks again.",
                file=path,
            )
        if "why" in row:
            reasons[key] = str(row["why"])
        else:
            found[key] = row
    rows = []
    for key, claim in paper_claims().items():
        result = found.get(key, {"verdict": NOT_YET, "note": "Nothing here measures this so far."})
        if key in reasons and result["verdict"] in (DIRECTION, FAILED):
            result = {**result, "note": f"{result['note']} Why: {reasons[key]}"}
        rows.append({**asdict(claim), **result})
    table = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    return table.astype({"measured": float, "low": float, "high": float, "n": "Int64"})


def _found(folder: Path) -> list[tuple[Path, dict[str, object]]]:
    """Return the rows that the notebooks wrote, with their files."""
    paths = sorted((folder / "claims").glob("*.json"))
    return [(path, row) for path in paths for row in json.loads(path.read_text(encoding="utf-8"))]


def profiles(folder: Path) -> list[str]:
    """Return the names of the notebook profiles, such as `paper`, whose results the claims in a folder come from."""
    return sorted({str(row["profile"]) for _, row in _found(folder)})


def write(folder: Path) -> pd.DataFrame:
    """Write `claims.csv`, `claims.md` and `claims.json` into `folder` and return the table."""
    table = merge(folder)
    origins = table["provenance"].dropna()
    counts = {str(kind): int(count) for kind, count in origins.value_counts().sort_index().items()}
    ran = profiles(folder)
    caption = (
        "Every checkable statement of the paper and of the other systems. Intervals are 95 % (see the note of each "
        f"row). Notebook profile: {', '.join(ran) or 'none run'}. Reductions and errors are in percent; a "
        "reduction is written with a minus."
    )
    if "smoke" in ran:
        caption += (
            " The profile smoke is a test of the machinery: its sizes are far too small for its verdicts to count."
        )
    files.write_text(folder / "claims.csv", tables.to_csv(table))
    files.write_text(folder / "claims.md", f"# The paper's claims\n\n{tables.to_markdown(table)}\n{caption}\n")
    text = provenance.sidecar_json(
        name="claims",
        caption=caption,
        rows=counts or {"published": 0},
        notebook=None,
        parameters={"profile": ", ".join(ran)},
    )
    files.write_text(folder / "claims.json", text)
    return table
