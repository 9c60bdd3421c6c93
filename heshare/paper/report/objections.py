"""The main objections to the results, as sentences with numbers from the outputs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from heshare.paper.claims.sources import look_up, source
from heshare.paper.report.published_outputs import PublishedOutput
from heshare.paper.texts import change
from heshare.scheduling.settings import LITERAL
from heshare.shared.errors import InputError


@dataclass(frozen=True, slots=True)
class Objection:
    """One objection: what it is in a few words, the sentences, and the keys of the outputs that show it."""

    title: str
    text: str
    evidence: tuple[str, ...]


def measured_rows(outputs: Sequence[PublishedOutput]) -> int:
    """Return how many rows of the outputs were measured on real GPUs."""
    return sum(int(output.about["provenance"].get("measured", 0)) for output in outputs)


def objections(folder: Path, table: pd.DataFrame, measured: int) -> list[Objection]:
    """Return the objections, strongest first; those whose numbers are not in `folder` are left out.

    Args:
        folder: the outputs.
        table: the claims, as from `claim_table.merge`.
        measured: how many rows of the outputs were measured.
    """
    writers: tuple[Callable[[Path], Objection], ...] = (_rivals, _simple, _literal, _search, _predictor, _online)
    found = [_emulated(table, measured)]
    for write in writers:
        try:
            found.append(write(folder))
        except (InputError, OSError):
            continue
    return found


def _emulated(table: pd.DataFrame, measured: int) -> Objection:
    kinds = table["provenance"].value_counts()
    emulated, evaluated = int(kinds.get("emulated", 0)), int(kinds.sum())
    real = f"{measured} rows of the outputs were measured on real GPUs." if measured else "None ran on a real GPU."
    text = (
        f"{emulated} of {evaluated} evaluated claims come from GPUs emulated from public measurements. {real} Whether "
        "the same holds on the paper's cards is open; sharing of different workloads was measured on one type of GPU."
    )
    return Objection("Emulated GPUs", text, ("x03a",))


def _forms(folder: Path, rival: str, form: str) -> tuple[float, float]:
    """Return the change of Trade-off's energy and average JCT against a form of a rival, %."""
    row = {"ours": "Trade-off", "rival": rival, "form": form}
    energy, jct = (
        look_up(folder, source("x05c_forms", "change_pct", **row, metric=metric))
        for metric in ("energy_active_j", "avg_jct_s")
    )
    return energy, jct


def _rivals(folder: Path) -> Objection:
    def both(rival: str, form: str) -> str:
        return "{:+.0f} and {:+.0f} %".format(*_forms(folder, rival, form))

    random, placed, best = "paper's set-up", "HeShare's placement", "own best"
    text = (
        "The paper's Morak and μ-Serve place tasks at random. Trade-off's energy and average JCT against Morak are "
        f"{both('Morak', random)}; where Morak places like HeShare {both('Morak', placed)}; at its own best settings "
        f"{both('Morak', best)}. Against μ-Serve they are {both('mu-Serve', random)}; {both('mu-Serve', placed)}; "
        f"{both('mu-Serve', best)}."
    )
    return Objection("Random placement of the rivals", text, ("x05c", "x05e"))


def _simple(folder: Path) -> Objection:
    energy, jct = map(change, _forms(folder, "SRTF at 0.8 clock", "baseline"))
    text = (
        f"Trade-off takes {energy} energy and {jct} average JCT than SRTF at a fixed 0.8 of the top clock, which plans "
        "nothing and is not in the paper."
    )
    return Objection("A simple baseline", text, ("fig06", "x05c"))


def _literal(folder: Path) -> Objection:
    row = {"group": "paper's words", "system": "all seven"}
    worth, low, high = (
        look_up(folder, source("x07a_ablation", column, **row))
        for column in ("change_pct", "change_low_pct", "change_high_pct")
    )
    text = (
        f"HeShare as shipped departs from the paper's words in {len(LITERAL)} settings, because the words leave the "
        "search nothing to choose. As shipped its front covers "
        f"{worth:.1f} % [{low:.1f}, {high:.1f}] more than by the words in all of them."
    )
    return Objection("Not the paper's words", text, ("x07a",))


def _search(folder: Path) -> Objection:
    def worth(group: str, system: str) -> str:
        row = {"group": group, "system": system}
        columns = ("change_pct", "change_low_pct", "change_high_pct")
        value, low, high = (look_up(folder, source("x07a_ablation", column, **row)) for column in columns)
        return f"{_tenths(value)} % [{_tenths(low)}, {_tenths(high)}]"

    text = (
        f"The paper's four operators of stage 1 together are worth {worth('operator', 'all four of these')} of the "
        f"front's hypervolume; choosing clocks {worth('part of stage 2', 'no clocks')}; choosing MPS percentages "
        f"{worth('part of stage 2', 'no MPS percentages')}, because nearly every task gets 100 % here, so that what "
        "the paper gains by them is not tested."
    )
    return Objection("What the search adds", text, ("x07a", "x05e", "fig07"))


def _predictor(folder: Path) -> Objection:
    def errors(model: str, where: str = "Here") -> str:
        sizes = (f"{where}: {kind} error (%)" for kind in ("absolute", "relative"))
        return " / ".join(f"{look_up(folder, source('table5_predictors', name, Model=model)):.1f}" for name in sizes)

    literal = "RF, the paper's outputs"
    text = (
        "The forest learns over a first guess from the load, which knows how GPUs such as the emulated ones work. It "
        f"errs by {errors('RF')} % (absolute / relative), with the paper's outputs as they are by {errors(literal)} %, "
        f"and on a GPU without training rows by {errors('RF', 'New GPU')} %. Its rival Physics has the functional form "
        "of the emulated device."
    )
    return Objection("What the predictor shares with the device", text, ("table5", "x04b"))


def _online(folder: Path) -> Objection:
    caption = json.loads((folder / "x20a_together.json").read_text(encoding="utf-8"))["caption"]
    sentences = [part for part in caption.split(". ") if part.startswith("HeShare online against")]
    if not sentences:
        raise InputError("no sentence on HeShare online", "one in the caption of x20a", "Run notebook 20 again.")
    text = (
        "In the paper's figures all tasks are there at the start. Where they arrive one by one: "
        f"{sentences[0].rstrip('.')}."
    )
    return Objection("Tasks that arrive one by one", text, ("x20a",))


def _tenths(value: float) -> str:
    """Return a number with its sign and one decimal; zero has a plus."""
    return f"{round(value, 1) + 0.0:+.1f}"
