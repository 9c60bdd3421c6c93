"""The table of the paper's claims: the paper's value, the measured value and the verdict of each."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from heshare.paper import tables
from heshare.paper.claims import claims_page, verdicts
from heshare.paper.provenance import sidecar as provenance
from heshare.paper.provenance.run_record import CUSTOM
from heshare.paper.texts import render
from heshare.shared import files
from heshare.shared.errors import InputError, require

COLUMNS = (
    "id", "part", "where", "statement", "unit", "paper", "measured", "low", "high", "interval", "n", "of", "verdict",
    "placed", "placed_verdict", "best", "best_verdict", "why", "reason", "source", "notebook", "provenance", "details",
)  # fmt: skip
_OF_PAPER = ("id", "part", "where", "statement", "paper")
NONE_RUN = "none run"
_PROFILES = ("paper", "smoke", CUSTOM)
_UNITS = {"reduction": "%", "error": "%", "limit": "%", "ratio": "x", "floor": "x", "value": "x", "ordering": ""}
"""Unit of the measured value by the kind of claim, unless the claim has another one."""
LONGEST = 120
"""Most characters of the sentence on a claim's result."""


def evaluate_claim(
    claim: verdicts.Claim,
    *,
    measured: float = math.nan,
    low: float = math.nan,
    high: float = math.nan,
    n: int,
    provenance: str,
    profile: str,
    note: str = "",
    why: str = "",
    at: Mapping[str, object] | None = None,
    holds: Mapping[str, bool] | None = None,
    forms: Mapping[str, tuple[float, float, float]] | None = None,
    testable: bool = True,
) -> dict[str, object]:
    """Return one evaluated claim as a row, with its verdict.

    The value and the ends of its interval are in the claim's unit, `n` values stand behind them, and `profile` is that
    of the notebook that made them. `why` is the result as one plain sentence of at most `LONGEST` characters, by
    default a general one, `at` what the claim's source leaves open, `holds` the parts of an ordering and whether each
    holds. `forms` has value, low and high against a rival that is `placed` like HeShare, or at its `best` settings. Not
    `testable` is where an assumption alone decides the value, so that it does not test the claim, or where the platform
    lacks what the claim is about; then there need be no value.

    Raises:
        InputError: a number that is needed is missing, the measured value lies outside its own interval, or the
            sentence is too long.
    """
    parts, changes, place = dict(holds or {}), dict(forms or {}), f"claim {claim.id}"
    if testable or not math.isnan(measured):
        good = bool(parts) if claim.kind == "ordering" else low <= measured <= high
        found = f"measured {measured}, interval {low} to {high}, parts {parts}"
        expected = "the parts of an ordering, or a value inside its interval"
        require(place, found, good, expected, "Correct what the notebook passes.")
    why = why or _result(claim, measured, parts, {form: size[0] for form, size in changes.items()})
    require(place, why, len(why) <= LONGEST, f"at most {LONGEST} characters", "Shorten it.")
    word = verdicts.verdict(claim, measured, low, high, n=n, holds=parts) if testable else verdicts.UNTESTABLE
    if testable and claim.reading:  # a row of our own reading stands beside that of the sentence
        word, note = (
            verdicts.UNSCORED,
            f"{render('claims', 'reading', reading=claim.reading, verdict=word)} {note}".strip(),
        )
    try:
        source = claim.source.format(**(at or {}))
    except KeyError as error:
        raise InputError(f"no {error}", f"what is open in {claim.source}", "Pass it in `at`.", column=place) from None
    against: dict[str, object] = {}
    for form, (value, least, most) in changes.items():
        against |= {form: value, f"{form}_verdict": verdicts.verdict(claim, value, least, most, n=n)}
    return {
        "id": claim.id,
        "part": claim.part,
        "unit": claim.unit or _UNITS[claim.kind],
        "measured": measured,
        "low": low,
        "high": high,
        "interval": claim.interval or verdicts.OF_DRAWS,
        "n": n,
        "of": claim.of or "seeds",
        "verdict": word,
        **against,
        "why": why,
        "source": source,
        "provenance": provenance,
        "profile": profile,
        "details": render("claims", "details", parts=parts, note=note),
    }


def _result(claim: verdicts.Claim, measured: float, holds: Mapping[str, bool], forms: Mapping[str, float]) -> str:
    # A general sentence; `forms` has the changes against a rival's other forms.
    if claim.kind == "ordering":
        wrong = [part for part, good in holds.items() if not good]
        text = render("claims", "ordering", count=len(holds), wrong=wrong)
        if len(text) <= LONGEST:
            return text
        return text[:LONGEST] if len(holds) == 1 else render("claims", "many_parts", count=len(holds), wrong=wrong)
    if forms:
        return render("claims", "against_rival", measured=measured, paper=claim.paper, **forms)
    kinds = {"reduction": "reduction", "error": "percentage", "limit": "percentage"}
    return render("claims", kinds.get(claim.kind, "ratio"), measured=measured, paper=claim.paper)


def explain_failure(claim: verdicts.Claim, why: str, *, profile: str) -> dict[str, object]:
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
        good, action = key in verdicts.paper_claims(), "Remove this stale file and run the notebooks again."
        require(None, f"claim {key}", good, "a claim of data/paper_claims.csv", action, file=path)
        counted = row["profile"] == profile
        if "reason" in row:
            reasons |= {key: str(row["reason"])} if counted else {}
        elif not counted:
            why = render("claims", "not_counted", notebook=path.stem, its=row["profile"], profile=profile)
            found.setdefault(key, {"verdict": verdicts.NOT_YET, "why": why})
        else:
            found[key] = {**row, "notebook": path.stem}
    nothing = {"verdict": verdicts.NOT_YET, "why": render("claims", "nothing_yet")}
    rows = []
    for key, claim in verdicts.paper_claims().items():
        result = found.get(key, nothing)
        if key in reasons and result["verdict"] not in (verdicts.NOT_YET, verdicts.REPRODUCED, verdicts.EXCEEDS):
            result = {**result, "details": f"{result['details']} Why: {reasons[key]}"}
        if result["verdict"] == verdicts.FAILED:
            found_reason = claim.why_not or re.split(r"(?<=[.])\s", reasons.get(key, ""), maxsplit=1)[0]
            result = {**result, "reason": found_reason or render("claims", "no_reason")}
        rows.append({name: getattr(claim, name) for name in _OF_PAPER} | result)
    table = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    numbers = dict.fromkeys(("measured", "low", "high", "placed", "best"), float)
    return table.astype({**numbers, "n": "Int64"})


def _found(folder: Path) -> list[tuple[Path, dict[str, object]]]:
    paths = sorted((folder / "claims").glob("*.json"))
    return [(path, row) for path in paths for row in json.loads(path.read_text(encoding="utf-8"))]


def reported_profile(folder: Path) -> str:
    """Return the notebook profile whose results are reported of a folder: paper, smoke, or else custom; or "none run".

    Custom are runs by hand, with other parameters, or of code that is not the commit's.
    """
    there = {str(row["profile"]) for _, row in _found(folder)}
    return next((profile for profile in _PROFILES if profile in there), NONE_RUN)


def executed_copies(folder: Path) -> Path:
    """Return the folder of the executed notebooks whose results are reported of a folder."""
    reported = reported_profile(folder)
    return files.root() / "build" / "notebooks" / ("paper" if reported == NONE_RUN else reported)


def left_out(folder: Path) -> str:
    reported = reported_profile(folder)
    others = {f"{path.stem} ({row['profile']})" for path, row in _found(folder) if row["profile"] != reported}
    return ", ".join(sorted(others))


def profile_text(folder: Path) -> str:
    return render("claims", "profile", profile=reported_profile(folder), others=left_out(folder))


def count_text(table: pd.DataFrame) -> str:
    """Return how many claims have each verdict: those of the HeShare paper first, then those of the other systems."""
    keys = zip(table["id"], table["part"].fillna(""), strict=True)
    own = pd.Series([verdicts.paper_claims()[key].is_own for key in keys], index=table.index)
    texts = []
    for rows, whose in ((table[own], "of the HeShare paper"), (table[~own], "of the other systems")):
        counts = rows["verdict"].value_counts()
        listed = ", ".join(f"{counts[word]} {word}" for word in verdicts.VERDICTS if word in counts)
        texts.append(f"{len(rows)} {whose}: {listed}")
    return "; ".join(texts)


def write(folder: Path) -> pd.DataFrame:
    """Write `claims.csv`, `claims.md` and `claims.json` into `folder` and return the table."""
    table = merge(folder)
    origins = table["provenance"].dropna()
    counts = {str(kind): int(count) for kind, count in origins.value_counts().sort_index().items()}
    profile = reported_profile(folder)
    caption = render("claims", "table", about_profile=profile_text(folder), profile=profile)
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
