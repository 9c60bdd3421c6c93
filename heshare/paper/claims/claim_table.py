"""The table of the papers' claims: the paper's value, the value here with its interval, and the verdict."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper import tables
from heshare.paper.claims import factorial, verdicts
from heshare.paper.claims.paper_claims import OF_DRAWS, Claim, paper_claims
from heshare.paper.provenance import sidecar
from heshare.paper.provenance.run_record import CUSTOM
from heshare.shared import files
from heshare.shared.errors import require

COLUMNS = (
    "id", "part", "where", "statement", "paper", "unit", "value", "low", "high", "interval", "n", "of", "verdict",
    "placed", "placed_verdict", "best", "best_verdict", "holds", "least_cell", "most_cell", "reason", "source",
    "notebook", "provenance",
)  # fmt: skip
"""Columns of `claims.csv`.

`value`, `low` and `high` are in `unit`; the interval is of `n` values (`of`: seeds, test sets, ...), its kind is
`interval`. `placed` and `best` are against a baseline with HeShare's placement, and at its best setting of those tried
on other seeds. `holds` lists the parts of an ordering. `least_cell` and `most_cell` are the range over the factorial.
"""
_PROFILES = ("paper", "smoke", CUSTOM)
OLDER = "The factorial is of an older platform: make beyond."
"""What a row says in place of the range where the factorial was made by other code or data."""


def evaluate_claim(
    claim: Claim,
    size: ConfidenceInterval | None,
    *,
    profile: str,
    holds: Mapping[str, bool] | None = None,
    forms: Mapping[str, ConfidenceInterval] | None = None,
    testable: bool = True,
    provenance: str = "emulated",
) -> dict[str, Any]:
    """Return one evaluated claim as a row, without the columns of the paper.

    Args:
        claim: the claim.
        size: its value with the interval, in the claim's unit; None for an ordering that has no number.
        profile: the profile of the notebook.
        holds: the parts of an ordering or a lead, and whether each holds.
        forms: the value against a baseline that is `placed` like HeShare, or at its `best` setting.
        testable: false where an assumption alone decides the value.
        provenance: of the value: emulated, measured or published.

    Raises:
        InputError: a number that is needed is missing, or the value lies outside its own interval.
    """
    good = size is None or size.low <= size.value <= size.high
    needed = not testable or (bool(holds) if claim.kind == "ordering" else size is not None)
    found = f"value {size}, parts {dict(holds or {})}"
    expected = "the parts of an ordering, or a value inside its interval"
    require(f"claim {claim.name}", found, good and needed, expected, "Correct what the notebook passes.")

    row: dict[str, Any] = {"id": claim.id, "part": claim.part, "profile": profile, "provenance": provenance}
    if size is not None:
        row |= size.columns("value")
    row["verdict"] = verdicts.verdict(claim, size, holds) if testable else verdicts.UNTESTABLE
    if testable and claim.reading:
        row["verdict"] = verdicts.UNSCORED
    row["holds"] = parts_text(holds or {})

    for form, other in (forms or {}).items():
        row |= {form: other.value, f"{form}_verdict": verdicts.verdict(claim, other)}
    return row


def parts_text(holds: Mapping[str, bool]) -> str:
    """Return the parts of an ordering as text: `3 of 4 hold; not: below Morak on V100`."""
    if not holds:
        return ""
    wrong = [part for part, good in holds.items() if not good]
    text = f"{len(holds) - len(wrong)} of {len(holds)} hold"
    return f"{text}; not: {', '.join(wrong)}" if wrong else text


def merge(folder: Path) -> pd.DataFrame:
    """Return every claim with its result from the notebooks' files in `folder`; others are missing.

    Rows of another profile than the one that is reported (`reported_profile`) are missing.

    Raises:
        InputError: a file of claims names a claim that does not exist.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    profile = reported_profile(folder)
    cells = factorial.read()

    for path, row in _found(folder):
        key = (str(row["id"]), str(row["part"]))
        good, action = key in paper_claims(), "Remove this stale file and run the notebooks again."
        require(None, f"claim {key}", good, "a claim of data/paper_claims.csv", action, file=path)
        if row["profile"] == profile:
            found[key] = {**row, "notebook": path.stem}

    return _table(_row(claim, found.get(key), cells) for key, claim in paper_claims().items())


def of_results(results: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the table of these claims alone; results as of `evaluate_claim`."""
    cells = factorial.read()
    return _table(_row(paper_claims()[row["id"], row["part"]], dict(row), cells) for row in results)


def _table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(list(rows)).reindex(columns=list(COLUMNS))
    numbers = dict.fromkeys(("value", "low", "high", "placed", "best", "least_cell", "most_cell"), float)
    return table.astype({**numbers, "n": "Int64"})


def _row(claim: Claim, result: dict[str, Any] | None, cells: factorial.Factorial | None) -> dict[str, Any]:
    """Return the row of a claim: the columns of the paper, the result, and the verdict of the factorial."""
    about = {
        "id": claim.id,
        "part": claim.part,
        "where": claim.where,
        "statement": claim.statement,
        "paper": claim.paper,
        "unit": claim.value_unit,
        "interval": claim.interval or OF_DRAWS,
        "of": claim.of or "seeds",
        "source": claim.source,
        "reason": claim.reason,
    }
    if result is None:
        return {**about, "verdict": verdicts.NOT_YET, "reason": ""}

    row = {**about, **result}
    cells_of_claim = cells.of(claim) if cells is not None and result["profile"] == "paper" else None
    if cells_of_claim is None or cells_of_claim.empty or cells is None:
        return _without_reason_if_good(row)

    if not cells.is_current:
        return _without_reason_if_good(row) | {"reason": OLDER}
    row |= {"least_cell": cells_of_claim["value"].min(), "most_cell": cells_of_claim["value"].max()}
    weaker = (verdicts.EXCEEDS, verdicts.DIRECTION, verdicts.FAILED)
    if row["verdict"] in weaker and factorial.is_undetermined(claim, row["value"], cells_of_claim):
        row["verdict"] = verdicts.UNDETERMINED
    return _without_reason_if_good(row)


def _without_reason_if_good(row: dict[str, Any]) -> dict[str, Any]:
    good = row["verdict"] in (verdicts.REPRODUCED, verdicts.INSIDE)
    return {**row, "reason": "" if good else row["reason"]}


def _found(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    paths = sorted((folder / "claims").glob("*.json"))
    return [(path, row) for path in paths for row in json.loads(path.read_text(encoding="utf-8"))]


def reported_profile(folder: Path) -> str:
    """Return the profile whose results are reported for a folder: paper, smoke, or else custom.

    Custom are runs without the runner, with other parameters, or of code that is not the commit's; a folder without
    claims counts as paper.
    """
    there = {str(row["profile"]) for _, row in _found(folder)}
    return next((profile for profile in _PROFILES if profile in there), "paper")


def left_out(folder: Path) -> list[str]:
    """Return the notebooks whose claims are of another profile than the one that is reported."""
    reported = reported_profile(folder)
    return sorted({f"{path.stem} ({row['profile']})" for path, row in _found(folder) if row["profile"] != reported})


def count_text(table: pd.DataFrame) -> str:
    """Return how many claims have each verdict: those of the HeShare paper first, then those of the other systems."""
    keys = zip(table["id"], table["part"].fillna(""), strict=True)
    is_heshare = pd.Series([paper_claims()[key].is_heshare for key in keys], index=table.index)
    texts = []

    for rows, whose in ((table[is_heshare], "of the HeShare paper"), (table[~is_heshare], "of the other systems")):
        counts = rows["verdict"].value_counts()
        listed = ", ".join(f"{counts[word]} {word}" for word in verdicts.VERDICTS if word in counts)
        texts.append(f"{len(rows)} {whose}: {listed}")
    return "; ".join(texts)


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Return claims with few columns for reading: claim, statement, paper, value with interval, verdict."""
    rows = []
    records: list[Any] = table.to_dict("records")
    for row in records:
        shown = value_text(row)
        name = f"{row['id']} {'' if pd.isna(row['part']) else row['part']}".strip()
        rows.append(
            {
                "Claim": name,
                "Statement": row["statement"],
                "Paper": row["paper"],
                "Here": shown,
                "Verdict": row["verdict"],
            }
        )
    return pd.DataFrame(rows)


def value_text(row: Mapping[str, Any]) -> str:
    """Return a row's value with its interval and unit: `-44.8 % [-53.6, -36.7]`; an ordering's parts."""
    is_ordering = paper_claims()[row["id"], "" if pd.isna(row["part"]) else row["part"]].kind == "ordering"
    if is_ordering or pd.isna(row["value"]):
        return "" if pd.isna(row["holds"]) else str(row["holds"])

    unit = str(row["unit"]).partition(",")[0]
    text = f"{row['value']:.3g} {unit}"
    return text if row["low"] == row["high"] else f"{text} [{row['low']:.3g}, {row['high']:.3g}]"


def write(folder: Path) -> pd.DataFrame:
    """Write `claims.csv`, `claims.md` and `claims.json` into `folder` and return the table."""
    table = merge(folder)
    profile = reported_profile(folder)
    origins = table["provenance"].dropna().value_counts().sort_index()
    counts = {str(kind): int(count) for kind, count in origins.items()}
    caption = f"Claims of the papers, with the values found here. {count_text(table)}."

    meanings = "\n".join(f"- *{word}*: {meaning}" for word, meaning in verdicts.VERDICTS.items())
    text = f"# Claims\n\n{caption}\n\n{tables.to_markdown(readable(table))}\n{meanings}\n"
    files.write_text(folder / "claims.md", text)
    files.write_text(folder / "claims.csv", tables.to_csv(table))
    about = sidecar.sidecar_json(
        name="claims",
        caption=caption,
        rows=counts or {"published": 0},
        suffixes=sidecar.TABLE_SUFFIXES,
        notebook=None,
        parameters={"profile": profile},
    )
    files.write_text(folder / "claims.json", about)
    return table
