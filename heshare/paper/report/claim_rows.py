"""The claims as the page shows them: a row each with texts, a drawing and links, and the counts by verdict."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.paper.claims.verdicts import EXCEEDS, REPRODUCED, VERDICTS, Claim, paper_claims
from heshare.paper.figures import series_styles
from heshare.paper.report import interval_drawing
from heshare.paper.report.interval_drawing import DrawnClaim
from heshare.paper.report.published_outputs import ROMAN

_FIRST_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class ClaimForm:
    """The value and the verdict of a claim against another form of the rival, as text."""

    label: str
    value: str
    verdict: str
    css: str


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One claim as it is shown.

    Attributes:
        id: such as `H1`.
        name: id and part.
        anchor: the row's anchor, such as `H1-energy`.
        opens: the claim's anchor if this is its first row, such as `H1`; else empty.
        where: the figure or table of the paper, or the other system.
        output: the key of that figure or table, such as `fig06`; empty for other systems.
        statement: the claim in words.
        paper: the paper's value.
        here: the value found here; empty if there is none.
        interval: its interval; empty if there is none.
        basis: what the interval is and how many values are behind it.
        verdict: one of `VERDICTS`.
        css: its class.
        drawing: the SVG.
        forms: values against other forms of the rival.
        why: one sentence.
        details: the rest.
        provenance: emulated, measured or published; empty if not evaluated.
        source: the text of the source.
        source_file: its CSV; empty if there is none.
        notebook: the notebook that evaluated it; empty if none did.
    """

    id: str
    name: str
    anchor: str
    opens: str
    where: str
    output: str
    statement: str
    paper: str
    here: str
    interval: str
    basis: str
    verdict: str
    css: str
    drawing: str
    forms: tuple[ClaimForm, ...]
    why: str
    details: str
    provenance: str
    source: str
    source_file: str
    notebook: str


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """A verdict with its meaning, colours, and how many claims have it."""

    verdict: str
    meaning: str
    css: str
    count: int
    colour: str
    ink: str


def css_class(verdict: str) -> str:
    """Return the class of a verdict, such as `v-not-reproduced`."""
    return f"v-{verdict.replace(' ', '-')}"


def rows(table: pd.DataFrame, folder: Path) -> list[ClaimRow]:
    """Return the rows of the claims, in the paper's order.

    Args:
        table: as from `claim_table.merge`.
        folder: the outputs; sources that are not there get no link.
    """
    known = paper_claims()
    found: list[Any] = table.to_dict("records")
    drawn = [_drawn(known[row["id"], _text(row["part"])], row) for row in found]
    places = interval_drawing.places(drawn)
    seen: set[str] = set()
    result = []
    for row, one in zip(found, drawn, strict=True):
        result.append(_row(row, one, places, folder, first=row["id"] not in seen))
        seen.add(row["id"])
    return result


def counts(table: pd.DataFrame) -> list[VerdictCount]:
    """Return how many claims have each verdict, those that occur, in the order of `VERDICTS`."""
    found = table["verdict"].value_counts()
    return [
        VerdictCount(verdict, meaning, css_class(verdict), int(found[verdict]), *colours(verdict))
        for verdict, meaning in VERDICTS.items()
        if verdict in found
    ]


def forms_summary(rows: Sequence[ClaimRow]) -> dict[str, int]:
    """Return, of the claims on rivals in several forms, how many there are and in how many the effect is as large.

    Keys: `all`; `set_up`, `placed` and `best`, the claims that are reproduced or exceeded against each form.
    """
    several = [row for row in rows if len(row.forms) == 2]
    large = {REPRODUCED, EXCEEDS}
    return {
        "all": len(several),
        "set_up": sum(row.verdict in large for row in several),
        "placed": sum(row.forms[0].verdict in large for row in several),
        "best": sum(row.forms[1].verdict in large for row in several),
    }


def colours(verdict: str) -> tuple[str, str]:
    """Return the colour of a verdict in the figures, and black or white, whichever is easier to read on it."""
    colour = series_styles.VERDICTS[verdict][0]
    return colour, "#000000" if _luminance(colour) > 0.18 else "#ffffff"


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour `#rrggbb`, 0 to 1 (WCAG 2.1)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _text(value: object) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _drawn(claim: Claim, row: Mapping[str, Any]) -> DrawnClaim:
    printed = _FIRST_NUMBER.search(claim.paper)
    paper = float(printed.group()) if printed and claim.kind != "ordering" else math.nan
    numbers = (float(row[name]) for name in ("measured", "low", "high", "placed", "best"))
    return DrawnClaim(claim, (paper, claim.far), *numbers)


def _row(
    row: Mapping[str, Any],
    drawn: DrawnClaim,
    places: Mapping[str, interval_drawing.Place],
    folder: Path,
    *,
    first: bool,
) -> ClaimRow:
    claim, details = drawn.claim, _text(row["details"])
    name = f"{claim.id} {claim.part}".strip()
    here, interval = _here(drawn, details), _interval(drawn)
    words = f"{name}: paper {claim.paper}; here {here or 'no value'} {interval}".strip()
    if claim.kind == "ordering":
        drawing = interval_drawing.parts_svg(*_held(details), words)
    else:
        drawing = interval_drawing.interval_svg(drawn, places[claim.kind], words)
    source = _text(row["source"])
    file = source.partition(": ")[0] if source else ""
    verdict = str(row["verdict"])
    return ClaimRow(
        id=claim.id,
        name=name,
        anchor=anchor(claim),
        opens=claim.id if first and claim.part else "",
        where=claim.where,
        output=output_of(claim.where),
        statement=claim.statement,
        paper="" if claim.kind == "ordering" else claim.paper,
        here=here,
        interval=interval,
        basis=_basis(row, drawn),
        verdict=verdict,
        css=css_class(verdict),
        drawing=drawing,
        forms=_forms(row),
        why=_text(row["why"]),
        details=details,
        provenance=_text(row["provenance"]),
        source=source,
        source_file=file if file and (folder / file).is_file() else "",
        notebook=_text(row["notebook"]),
    )


def anchor(claim: Claim) -> str:
    """Return the anchor of a claim's row, such as `H1-energy`."""
    return re.sub(r"[^A-Za-z0-9]+", "-", f"{claim.id} {claim.part}".strip())


def output_of(where: str) -> str:
    """Return the key of the output that a place of the paper is, such as `fig06`; empty for another system."""
    kind, _, number = where.partition(" ")
    if kind == "Fig.":
        return f"fig{int(number.rstrip('.')):02d}"
    return f"table{ROMAN.index(number) + 1}" if kind == "Table" and number in ROMAN else ""


def _held(details: str) -> tuple[int, int]:
    """Return how many parts of an ordering hold and fail, read from its details."""
    return len(re.findall(r"\bholds: ", details)), details.count("FAILS: ")


def _here(drawn: DrawnClaim, details: str) -> str:
    if drawn.claim.kind == "ordering":
        holds, fails = _held(details)
        if holds + fails == 1:
            return "holds" if holds else "does not hold"
        return f"{holds} of {holds + fails} parts hold" if holds + fails else ""
    return _number(drawn.value, drawn.claim.kind)


def _interval(drawn: DrawnClaim) -> str:
    if drawn.claim.kind == "ordering" or not math.isfinite(drawn.low) or drawn.low == drawn.high:
        return ""
    return f"[{_number(drawn.low, '')}, {_number(drawn.high, '')}]"


def _number(value: float, kind: str) -> str:
    if not math.isfinite(value):
        return ""
    unit = {"": "", "ratio": "x", "floor": "x", "value": "x"}.get(kind, " %")
    digits = f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return f"{digits}{unit}"


def _basis(row: Mapping[str, Any], drawn: DrawnClaim) -> str:
    """Return what an interval is and how many values are behind it; of an ordering also what was measured."""
    kind = _text(row["interval"])
    if not kind or pd.isna(row["n"]) or int(row["n"]) == 0:
        return ""
    count = f"{int(row['n'])} {row['of']}"
    text = f"no interval; {count}" if kind == "none" else f"{kind}, {count}"
    if drawn.claim.kind != "ordering" or not math.isfinite(drawn.value) or not _text(row["unit"]):
        return text
    interval = f" [{_number(drawn.low, '')}, {_number(drawn.high, '')}]" if math.isfinite(drawn.low) else ""
    return f"{_number(drawn.value, '')}{interval} {row['unit']}; {text}"


def _forms(row: Mapping[str, Any]) -> tuple[ClaimForm, ...]:
    labels: Sequence[tuple[str, str]] = (("placed", "rival placed like HeShare"), ("best", "rival at its own best"))
    return tuple(
        ClaimForm(label, _number(float(row[form]), "reduction"), verdict, css_class(verdict))
        for form, label in labels
        if (verdict := _text(row[f"{form}_verdict"]))
    )
