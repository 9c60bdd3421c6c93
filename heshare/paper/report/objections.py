"""The main objections to the results, as sentences with numbers from the outputs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from heshare.paper.claims.sources import look_up
from heshare.paper.texts import render
from heshare.scheduling.settings import LITERAL
from heshare.shared.errors import InputError


@dataclass(frozen=True, slots=True)
class Objection:
    """One objection: what it is in a few words, the sentences, and the keys of the outputs that show it."""

    title: str
    text: str
    evidence: tuple[str, ...]


def objections(folder: Path, table: pd.DataFrame, measured: int) -> list[Objection]:
    """Return the objections, strongest first; those whose numbers are not in `folder` are left out."""
    kinds, value = table["provenance"].value_counts(), partial(look_up, folder)
    about = {"emulated": int(kinds.get("emulated", 0)), "evaluated": int(kinds.sum()), "measured": measured}
    words = partial(render, "objections")
    made: tuple[tuple[str, tuple[str, ...], Callable[[], str]], ...] = (
        ("Emulated GPUs", ("x03a",), lambda: words("emulated", **about)),
        ("Random placement of the rivals", ("x05c", "x05e"), lambda: words("rivals", value=value)),
        ("A simple baseline", ("fig06", "x05c"), lambda: words("simple", value=value)),
        ("Not the paper's words", ("x07a",), lambda: words("literal", value=value, settings=len(LITERAL))),
        ("What the search adds", ("x07a", "x05e", "fig07"), lambda: words("search", value=value)),
        ("What the predictor shares with the device", ("table5", "x04b"), lambda: words("predictor", value=value)),
        ("Tasks that arrive one by one", ("x20a",), lambda: words("online", sentence=_on_online(folder))),
    )
    found = []
    for title, evidence, text in made:
        try:
            found.append(Objection(title, text(), evidence))
        except (InputError, OSError):
            continue
    return found


def _on_online(folder: Path) -> str:
    caption = json.loads((folder / "x20a_together.json").read_text(encoding="utf-8"))["caption"]
    sentences = [part for part in caption.split(". ") if part.startswith("HeShare online against")]
    if not sentences:
        raise InputError("no sentence on HeShare online", "one in the caption of x20a", "Run notebook 20 again.")
    return str(sentences[0].rstrip("."))
