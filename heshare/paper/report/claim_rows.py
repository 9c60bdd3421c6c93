"""The claims as the page shows them: a row each with what its drawing needs, and the counts by verdict."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.paper.claims import claims_page
from heshare.paper.claims.verdicts import VERDICTS, Claim, paper_claims
from heshare.paper.figures import series_styles
from heshare.paper.report.published_outputs import ROMAN

WIDTH, MARGIN = 180, 8
"""Width of a drawing and its margin on either side, px."""
_SCALES: Sequence[tuple[Sequence[str], float]] = (
    (("reduction", "limit"), 0.0),
    (("error",), 0.0),
    (("ratio", "floor", "value"), 1.0),
)
"""The kinds of claims that share a scale, so that they can be compared by eye; the value of no change, or no error."""
_RATIOS = _SCALES[-1][0]
"""Ratios are drawn on a logarithmic scale."""
Place = Callable[[float], float]


@dataclass(frozen=True)
class ClaimRow:
    """One claim as it is shown; `found` is its row of `claims.csv`, with None for an empty cell.

    `place` takes a value to its place in the drawing, px; `neutral` is the value of no change. `opens` says whether it
    is the first of several parts. `source_file` is the CSV of its source; empty if that is not there.
    """

    claim: Claim
    found: Mapping[str, Any]
    place: Place
    neutral: float
    opens: bool
    source_file: str

    @property
    def anchor(self) -> str:
        """Its anchor on the page, such as `H1-energy`."""
        return re.sub(r"[^A-Za-z0-9]+", "-", self.claim.name)

    @property
    def output(self) -> str:
        """The key of the paper's figure or table, such as `fig06`; empty for another system."""
        return output_of(self.claim.where)

    @cached_property
    def held(self) -> tuple[int, int]:
        return claims_page.held(self.found["details"] or "")

    @property
    def paper_ends(self) -> list[float]:
        """The places of the paper's values, px: two where it has a range."""
        return sorted({self.place(end) for end in (self.claim.printed, self.claim.far) if math.isfinite(end)})

    @property
    def gap(self) -> float:
        """How far the value here is from the paper's, px on the scale of its kind; -1 without a value."""
        if self.found["measured"] is None or not self.paper_ends:
            return -1.0
        return min(abs(self.place(self.found["measured"]) - end) for end in self.paper_ends)

    def number(self, value: float | None) -> str:
        unit = "x" if self.claim.kind in _RATIOS else " %"
        return "" if value is None else f"{claims_page.number(value)}{unit}"

    @property
    def interval(self) -> str:
        low, high = self.found["low"], self.found["high"]
        return "" if low is None else claims_page.interval(low, high)

    @property
    def forms(self) -> list[tuple[str, str, str]]:
        """Words, value and verdict against each other form of the rival."""
        known = [(words, self.found[form], self.found[f"{form}_verdict"]) for form, words in claims_page.FORMS.items()]
        return [(words, f"{claims_page.number(value)} %", verdict) for words, value, verdict in known if verdict]


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """A verdict with its meaning, how many claims have it, and its colour and that of text on it."""

    verdict: str
    meaning: str
    count: int
    colour: str
    ink: str


def rows(table: pd.DataFrame, folder: Path) -> list[ClaimRow]:
    """Return the claims of a table as from `claim_table.merge`; sources that are not in `folder` get no link."""
    found: list[Any] = table.astype(object).where(table.notna(), None).to_dict("records")
    claims = [paper_claims()[row["id"], row["part"] or ""] for row in found]
    places = _places(claims, found)
    seen: set[str] = set()
    result = []
    for claim, row in zip(claims, found, strict=True):
        file = (row["source"] or "").partition(": ")[0]
        opens, file = bool(claim.id not in seen and claim.part), file if (folder / file).is_file() else ""
        result.append(ClaimRow(claim, row, *places.get(claim.kind, (float, math.nan)), opens, file))
        seen.add(claim.id)
    return result


def _places(claims: Sequence[Claim], found: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Place, float]]:
    # By kind of claim: the function from a value to its place, and the neutral value; an ordering has none.
    places: dict[str, tuple[Place, float]] = {}
    for kinds, neutral in _SCALES:
        values = [neutral]
        for claim, row in zip(claims, found, strict=True):
            if claim.kind in kinds:
                values += [end for end in (claim.printed, claim.far) if math.isfinite(end)]
                here = (row[name] for name in ("measured", "low", "high", "placed", "best"))
                values += [value for value in here if value is not None]
        places |= dict.fromkeys(kinds, (_place(values, logarithmic=kinds == _RATIOS), neutral))
    return places


def _place(values: Sequence[float], *, logarithmic: bool) -> Place:
    def position(value: float) -> float:
        return math.log(max(value, 1e-6)) if logarithmic else value

    least, most = position(min(values)), position(max(values))
    width = (WIDTH - 2 * MARGIN) / ((most - least) or 1.0)
    return lambda value: MARGIN + (position(value) - least) * width


def counts(verdicts: "pd.Series[str]") -> list[VerdictCount]:
    """Return how many claims have each verdict, those that occur, in the order of `VERDICTS`."""
    found = verdicts.value_counts()
    return [
        VerdictCount(verdict, meaning, int(found[verdict]), *colours(verdict))
        for verdict, meaning in VERDICTS.items()
        if verdict in found
    ]


def colours(verdict: str) -> tuple[str, str]:
    """Return the colour of a verdict in the figures, and black or white, whichever is easier to read on it."""
    colour = series_styles.VERDICTS[verdict][0]
    # Relative luminance of a colour `#rrggbb`, 0 to 1 (WCAG 2.1).
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return colour, "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "#ffffff"


def output_of(where: str) -> str:
    """Return the key of the output that a place of the paper is, such as `fig06`; empty for another system."""
    kind, _, number = where.partition(" ")
    if kind == "Fig.":
        return f"fig{int(number.rstrip('.')):02d}"
    return f"table{ROMAN.index(number) + 1}" if kind == "Table" and number in ROMAN else ""
