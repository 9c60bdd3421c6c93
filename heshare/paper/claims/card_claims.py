"""The paper's statements asked of the cards of a source: whether each holds there, beside the emulated T4, V100, A100.

There is no verdict against the paper's numbers, which are of other cards.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper import tables
from heshare.paper.claims import claim_table
from heshare.paper.claims.paper_claims import Claim, paper_claims
from heshare.paper.provenance import sidecar
from heshare.paper.reference import reference_results
from heshare.paper.studies.sources import CLOCKS, FRONTS, KINDS, PAPER, WORKLOADS, Source
from heshare.shared import files
from heshare.shared.errors import InputError

HOLDS, FAILS, NOT_ASKED = "holds", "does not hold", "cannot be asked"
COLUMNS = (
    "id", "part", "where", "statement", "answer", "why", "value", "low", "high", "n", "unit", "holds", "emulated",
    "notebook", "provenance",
)  # fmt: skip
"""Columns of `claims.csv` of a source: `emulated` are the values on the emulated T4, V100 and A100."""
NEEDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("M1", "M2", "M3", "M4", "M8", "G5"), (PAPER,)),
    "M5": (CLOCKS, KINDS),
    **dict.fromkeys(("H1", "H2", "H5", "O1", "O2", "O3", "O4", "O5", "O6", "O7"), (CLOCKS,)),
    **dict.fromkeys(("G1", "G2", "G4"), (KINDS, CLOCKS)),
    **dict.fromkeys(("G3", "G6"), (KINDS,)),
    **dict.fromkeys(("S1", "S2", "S3", "H3 JCT-opt", "H4 En-opt", "H6"), (FRONTS,)),
}
"""What a claim needs of a source, by id, or by id and part.

Those with clocks compare with systems that set them, or vary them; those with fronts compare HeShare's own plans.
"""
_SOLO = ("M", "P")
"""Beginnings of the ids of claims that need no task sets."""
NUMBER = "it is a number of the paper's cards"


def claim_of(id: str, part: str) -> Claim:
    """Return the statement of an id and a part, which may begin with a card: `H100`, or `H100, Morak`."""
    known = paper_claims()
    first = next(claim for claim in known.values() if claim.id == id)
    return known.get((id, part)) or known.get((id, part.rpartition(", ")[2])) or first


def evaluate(
    id: str,
    part: str,
    size: ConfidenceInterval | None,
    *,
    source: Source,
    profile: str,
    holds: Mapping[str, bool] | None = None,
    provenance: str,
) -> dict[str, Any]:
    """Return a statement of the paper, asked of a source, as a row.

    Args:
        id: of the statement.
        part: which of its numbers; a card where the paper has one number a card.
        size: its value here with the interval; None for an ordering that has no number.
        source: the cards.
        profile: of the notebook.
        holds: the parts of an ordering, and whether each holds.
        provenance: of the value.
    """
    claim = claim_of(id, part)
    why = _reason(claim, source)
    answer = NOT_ASKED if why else HOLDS if _holds(claim, size, holds) else FAILS
    if why and size is not None and source.lack(CLOCKS) and CLOCKS in NEEDS.get(claim.id, ()):
        why += "; the number is at one clock"

    row = {"id": claim.id, "part": part, "profile": profile, "answer": answer, "why": why, "provenance": provenance}
    sized = {} if size is None else size.columns("value")
    return {**row, **sized, "holds": claim_table.parts_text(holds or {})}


def _reason(claim: Claim, source: Source) -> str:
    """Return why a statement cannot be asked of a source; empty if it can."""
    needs = [
        *NEEDS.get(claim.id, ()),
        *NEEDS.get(claim.name, ()),
        *(() if claim.id.startswith(_SOLO) else (WORKLOADS,)),
    ]
    lack = next((lack for need in needs if (lack := source.lack(need))), None)
    if lack is not None:
        return lack.reason
    return NUMBER if claim.kind in ("error", "value", "limit") else ""


def _holds(claim: Claim, size: ConfidenceInterval | None, holds: Mapping[str, bool] | None) -> bool:
    """Return whether all parts hold, or the whole interval has the paper's sign."""
    if claim.kind in ("ordering", "lead"):
        return bool(holds) and all((holds or {}).values())
    return size is not None and min(claim.effect(size.low), claim.effect(size.high)) > 0


def write(folder: Path, source: Source) -> pd.DataFrame:
    """Write `claims.csv`, `claims.md` and `claims.json` of a source into `folder`, and return the table.

    A statement that its cards could be asked but no notebook in `folder` has asked is not in it.
    """
    table = pd.DataFrame(list(_rows(folder, source)), columns=list(COLUMNS))
    caption = f"Statements of the paper asked of {', '.join(source.gpus)}: {count_text(table)}."
    text = f"# Claims\n\n{caption}\n\n{tables.to_markdown(readable(table))}\n"
    files.write_text(folder / "claims.md", text)
    files.write_text(folder / "claims.csv", tables.to_csv(table))
    counts = {str(kind): int(n) for kind, n in table["provenance"].value_counts().sort_index().items() if kind}
    about = sidecar.sidecar_json(
        name="claims", caption=caption, rows=counts or {"published": 0}, suffixes=sidecar.TABLE_SUFFIXES,
        notebook=None, parameters={"source": source.text},
    )  # fmt: skip
    files.write_text(folder / "claims.json", about)
    return table


def _rows(folder: Path, source: Source) -> Iterator[dict[str, Any]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted((folder / "claims").glob("*.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            found.setdefault(row["id"], {})[row["part"]] = {**row, "notebook": path.stem}

    emulated = _emulated()
    for claim in (claim for claim in paper_claims().values() if claim.is_heshare):
        of_id = {part: text for (id, part), text in emulated.items() if id == claim.id}
        about = {"id": claim.id, "part": claim.part, "where": claim.where, "unit": claim.value_unit}
        about |= {"statement": claim.statement, "emulated": of_id.get(claim.part, "")}
        own = found.get(claim.id, {})

        if claim.part in own:
            yield about | own[claim.part]
        elif claim.id not in found and (why := _reason(claim, source)):
            yield {**about, "answer": NOT_ASKED, "why": why}

        # The number of a card that the paper does not have stands beside those of its cards.
        for part in [part for part in own if (claim.id, part) not in paper_claims()]:
            statement = claim_of(claim.id, part).statement
            of_card = statement.partition(": ")[2] or statement.replace("On the A100 the", "the")
            beside = "; ".join(f"{card}: {text}" if card else text for card, text in of_id.items())
            yield {**about, **own.pop(part), "statement": f"{part.partition(', ')[0]}: {of_card}", "emulated": beside}


def _emulated() -> dict[tuple[str, str], str]:
    """Return the values on the emulated T4, V100 and A100, by claim; none where the reference is missing."""
    try:
        table = reference_results.table(reference_results.CLAIMS)
    except InputError:
        return {}
    rows: Any = table.fillna({"part": ""}).to_dict("records")
    return {(row["id"], row["part"]): claim_table.value_text(row) for row in rows}


def count_text(table: pd.DataFrame) -> str:
    """Return how many statements have each answer."""
    counts = table["answer"].value_counts()
    plural = {HOLDS: "hold", FAILS: "do not hold", NOT_ASKED: NOT_ASKED}
    return ", ".join(
        f"{counts[word]} {many if counts[word] > 1 else word}" for word, many in plural.items() if word in counts
    )


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the statements with few columns for reading."""
    rows = []
    filled: Any = table.astype(object).where(table.notna(), "")
    for row in filled.to_dict("records"):
        here = row["holds"]
        if row["value"] != "" and not here:
            unit = row["unit"].partition(",")[0]
            here = f"{row['value']:.3g} {unit} [{row['low']:.3g}, {row['high']:.3g}]"
        answer = f"{row['answer']}, because {row['why']}" if row["why"] else row["answer"]
        names = {"Claim": f"{row['id']} {row['part']}".strip(), "Statement": row["statement"]}
        rows.append({**names, "Here": here, "Answer": answer, "Emulated T4, V100, A100": row["emulated"]})
    return pd.DataFrame(rows)
