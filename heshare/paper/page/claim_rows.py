"""The claims as rows of the page: the text of their cells, and the positions of the marks in their drawings."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from heshare.paper.claims import claim_table
from heshare.paper.claims.paper_claims import Claim, paper_claims
from heshare.paper.claims.verdicts import FAILED, NOT_YET, VERDICTS, WITHIN
from heshare.paper.page.outputs import COMMANDS

WIDTH = 140
"""Width of a drawing, px."""
_LEAST, _MOST = -0.75, 3.0
"""Ends of a drawing, in multiples of the paper's effect; what lies beyond is drawn at the end."""
_WITH_QUARTER = ("reduction", "ratio", "error")
"""Kinds of claims that the rule compares with a quarter of the paper's effect."""


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One claim on the page; `found` is its row of `claims.csv`, with None for an empty cell."""

    claim: Claim
    found: Mapping[str, Any]

    @property
    def anchor(self) -> str:
        """Its anchor on the page, such as `H1-energy`."""
        return re.sub(r"[^A-Za-z0-9]+", "-", self.claim.name)

    @property
    def verdict(self) -> str:
        return str(self.found["verdict"])

    @property
    def paper(self) -> str:
        """The paper's value; empty for an ordering, which the statement gives."""
        return "" if self.claim.paper == "ordering" else _printed(self.claim.paper)

    @property
    def here(self) -> str:
        """The value here without its interval, or how many parts of an ordering hold."""
        return _printed(re.split(r" \[|; not: ", claim_table.value_text(self.found))[0])

    @property
    def fails(self) -> str:
        """The parts of an ordering that fail."""
        _, _, parts = str(self.found["holds"] or "").partition("; not: ")
        return f"Not: {parts}." if parts else ""

    @property
    def interval(self) -> str:
        _, opening, interval = claim_table.value_text(self.found).partition("[")
        return _printed(opening + interval)

    @property
    def forms(self) -> str:
        """The value against a baseline with HeShare's placement, and at its best setting; empty without a baseline."""
        labels = {"placed": "placed by HeShare", "best": "at its best setting"}
        texts = [f"{words} {self.found[form]:.3g} %" for form, words in labels.items() if self.found[form] is not None]
        return _printed(f"Baseline {', '.join(texts)}.") if texts else ""

    @property
    def range(self) -> str:
        """The range over the factorial; empty for a claim without one."""
        least = self.found["least_cell"]
        most = self.found["most_cell"]
        return "" if least is None else _printed(f"Open choices: {least:.3g} to {most:.3g} %.")

    @property
    def make(self) -> str:
        """The command that evaluates a missing claim; empty for others."""
        if self.verdict != NOT_YET:
            return ""
        return COMMANDS["paper" if self.claim.is_heshare else "beyond"]

    @property
    def is_drawn(self) -> bool:
        """Whether the paper has a number to which the value here can be compared."""
        return self.found["value"] is not None and not math.isnan(self._effect(self.found["value"]))

    def at(self, value: float) -> float:
        """Return the position of a value in the drawing, px."""
        return _place(self._effect(value))

    def marks(self, names: Sequence[str]) -> list[float]:
        """Return the positions of the values in these columns, if there are any."""
        return [self.at(self.found[name]) for name in names if self.found[name] is not None]

    @property
    def is_beyond(self) -> bool:
        """Whether the value here lies beyond the ends of the drawing."""
        return not _LEAST <= self._effect(self.found["value"]) <= _MOST

    @property
    def no_change(self) -> float:
        return _place(0.0)

    @property
    def paper_ends(self) -> list[float]:
        """The positions of the paper's values, px: two where it has a range."""
        return sorted({self.at(end) for end in self.claim.ends})

    @property
    def quarter(self) -> tuple[float, float] | None:
        """The positions between which the rule accepts a value as the paper's; None for other rules."""
        if self.claim.kind not in _WITH_QUARTER:
            return None
        near, far = sorted(self._effect(end) for end in self.claim.ends)
        return _place(near * (1 - WITHIN)), _place(far * (1 + WITHIN))

    def _effect(self, value: float) -> float:
        """Return a value as a multiple of the paper's effect; NaN where the paper has no number."""
        if self.claim.kind in ("error", "limit"):
            return value / self.claim.value
        whole = self.claim.effect(self.claim.value)
        return self.claim.effect(value) / whole if whole else math.nan


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """A verdict with its meaning, and how many claims have it."""

    verdict: str
    meaning: str
    count: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A reason why claims are not reproduced, and those claims."""

    reason: str
    rows: tuple[ClaimRow, ...]


def rows(table: pd.DataFrame) -> list[ClaimRow]:
    """Return the claims of a table as from `claim_table.write`."""
    found: list[Any] = table.astype(object).where(table.notna(), None).to_dict("records")
    return [ClaimRow(paper_claims()[row["id"], row["part"] or ""], row) for row in found]


def counts(rows: Sequence[ClaimRow]) -> list[VerdictCount]:
    """Return how many claims have each verdict, those that occur, in the order of `VERDICTS`."""
    of = [row.verdict for row in rows]
    return [VerdictCount(word, meaning, of.count(word)) for word, meaning in VERDICTS.items() if word in of]


def failures(rows: Sequence[ClaimRow]) -> list[Failure]:
    """Return the claims that are not reproduced by their reasons, in the order of the claims."""
    by_reason: dict[str, list[ClaimRow]] = {}
    for row in rows:
        if row.verdict == FAILED:
            by_reason.setdefault(row.found["reason"] or "", []).append(row)
    return [Failure(reason, tuple(failed)) for reason, failed in by_reason.items()]


def _place(effect: float) -> float:
    """Return the position of a multiple of the paper's effect, px: 0 is no change, 1 the paper's value."""
    inside = min(max(effect, _LEAST), _MOST)
    return (inside - _LEAST) / (_MOST - _LEAST) * WIDTH


def _printed(text: str) -> str:
    """Return a text with minus signs, and with numbers and units that stay on one line."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
    return re.sub(r"(?<=\d) x\b", "x", text).replace(" %", "\N{NO-BREAK SPACE}%")
