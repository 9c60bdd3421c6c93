"""The context of a notebook: its parameters, and the saving of figures, tables and claims."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper import tables
from heshare.paper.claims import card_claims, claim_table
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.figures import style
from heshare.paper.figures.style import with_origin, write_figure
from heshare.paper.harness import WALL_TIME
from heshare.paper.notebooks import parameters as notebook_parameters
from heshare.paper.notebooks.output_folders import custom_folder, in_figures, in_words
from heshare.paper.provenance import run_record, sidecar
from heshare.paper.provenance.run_record import RunRecord
from heshare.paper.provenance.sidecar import DATA_SUFFIXES, FIGURE_SUFFIXES, TABLE_SUFFIXES
from heshare.paper.studies import sources
from heshare.paper.studies.sources import Source
from heshare.shared import files, html_tables
from heshare.shared.display import number
from heshare.shared.errors import InputError, require

_SCREEN_DPI = 150
"""Pixels of the screen to an inch in print."""
LONGEST_CAPTION = 60
"""Most words of a caption, without its provenance."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A written PNG that Jupyter displays in its printed size."""

    path: Path

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        image = self.path.read_bytes()
        return image, {"width": round(_SCREEN_DPI * style.png_size(image)[0] / style.DPI)}


@dataclass(frozen=True, slots=True)
class TablePreview:
    """A written table that Jupyter displays with units and four digits."""

    frame: pd.DataFrame

    def _repr_html_(self) -> str:
        return html_tables.html_frame(self.frame, rows=40)


@dataclass(frozen=True)
class Context:
    """The context of a running notebook; made by `setup`.

    `notebook` is the source, with its defaults and declared outputs, `parameters` the values of this run.
    """

    notebook: notebook_parameters.Notebook
    parameters: dict[str, Any]
    out: Path
    run: RunRecord
    _claims: list[dict[str, object]] = field(default_factory=list)

    @property
    def profile(self) -> str:
        """The profile of the outputs: `smoke`, `paper`, or `custom` without the runner or with other parameters."""
        return self.run.profile

    @property
    def source(self) -> Source:
        """The GPUs of its figures."""
        return sources.read(str(self.parameters.get(run_record.SOURCE, sources.EMULATED)))

    @property
    def is_published(self) -> bool:
        """Whether the outputs are the paper's, in `figures/`; only then may a notebook write to `reference/`."""
        return self.profile == "paper" and self.source.is_default and in_figures(self.out)

    def rng(self, stream: int = 0) -> np.random.Generator:
        """Return a random generator of this notebook's seed; each `stream` is independent of the others."""
        return np.random.default_rng(np.random.SeedSequence([int(self.parameters.get("seed", 0)), stream]))

    def figure(
        self,
        rows: int = 1,
        columns: int = 1,
        *,
        height_in: float = 2.1,
        wide: bool = False,
        sharex: bool = False,
        sharey: bool = False,
        squeeze: bool = True,
        width_ratios: Sequence[float] | None = None,
        height_ratios: Sequence[float] | None = None,
    ) -> Any:
        """Return a figure of one column's width (or of the page's) and its axes, as `matplotlib.pyplot.subplots`."""
        return plt.subplots(
            rows,
            columns,
            figsize=(style.PAGE_IN if wide else style.COLUMN_IN, height_in),
            layout="constrained",
            sharex=sharex,
            sharey=sharey,
            squeeze=squeeze,
            width_ratios=width_ratios,
            height_ratios=height_ratios,
        )

    def save(
        self,
        fig: Figure,
        name: str,
        *,
        data: pd.DataFrame,
        caption: str,
        rows: Mapping[str, int] | str,
        table: pd.DataFrame | bool = False,
        origin: str = "",
    ) -> Preview:
        """Write a figure as PDF, PNG, CSV (the plotted numbers) and JSON (its provenance).

        Args:
            fig: the figure; the caption is written under it in the PNG, and in the JSON.
            name: one of the declared outputs, such as `fig06_comparison`.
            data: the plotted numbers.
            caption: what is drawn, then setting, intervals and seeds, as sentences of at most `LONGEST_CAPTION` words;
                the provenance is appended.
            rows: how many rows of `data` are emulated, measured, published; a single name if all have the same
                provenance.
            table: a table to write as Markdown of the same name; True: `data` itself.
            origin: the caption's text on provenance, in place of "Emulated." and similar.

        Returns:
            The PNG, which a notebook shows.

        Raises:
            InputError: the notebook did not declare this output, there is no data, or the caption is too long.
        """
        counts = self._check(name, data, rows, caption)
        text = with_origin(caption, counts, origin or self._origin(counts))
        drawn = {"legend": style.legend_colours(fig), "smallest_text_pt": style.smallest_text_pt(fig)}
        preview = write_figure(fig, self.out, name, text)

        suffixes = [*FIGURE_SUFFIXES]
        if not isinstance(table, bool) or table:
            self._markdown(name, data if isinstance(table, bool) else table, text)
            suffixes.append(".md")
        self._write(name, data, text, counts, suffixes, drawn)
        return Preview(preview)

    def table(
        self,
        data: pd.DataFrame,
        name: str,
        *,
        caption: str,
        rows: Mapping[str, int] | str,
        shown: pd.DataFrame | Sequence[str] | None = None,
        origin: str = "",
    ) -> TablePreview:
        """Write a table as CSV, Markdown and JSON (its provenance); return it for display.

        `shown` is the table in Markdown, if it differs from `data`, or its columns; for the other arguments see `save`.

        Raises:
            InputError: as `save`.
        """
        counts = self._check(name, data, rows, caption)
        text = with_origin(caption, counts, origin or self._origin(counts))
        readable = data if shown is None else shown if isinstance(shown, pd.DataFrame) else data[list(shown)]
        self._markdown(name, readable, text)
        self._write(name, data, text, counts, TABLE_SUFFIXES)
        return TablePreview(readable)

    def data(self, data: pd.DataFrame, name: str, *, caption: str, rows: Mapping[str, int] | str) -> TablePreview:
        """Write raw rows, such as single runs, as CSV and JSON (their provenance); return them.

        Raises:
            InputError: as `save`.
        """
        counts = self._check(name, data, rows, caption)
        self._write(name, data, with_origin(caption, counts, self._origin(counts)), counts, DATA_SUFFIXES)
        return TablePreview(data)

    def claim(
        self,
        id: str,
        part: str = "",
        size: ConfidenceInterval | None = None,
        *,
        holds: Mapping[str, bool] | None = None,
        forms: Mapping[str, ConfidenceInterval] | None = None,
        testable: bool = True,
        provenance: str = "emulated",
    ) -> str:
        """Evaluate a claim of a paper and return the verdict; arguments as of `claim_table.evaluate_claim`.

        On other cards than the paper's the statement is asked of them, and the answer returned (`card_claims`); `part`
        may then be a card.
        """
        if not self.source.is_default:
            kind = self.source.provenance
            row = card_claims.evaluate(
                id, part, size, source=self.source, profile=self.profile, holds=holds, provenance=kind
            )
            return self._keep(row, "answer")
        row = claim_table.evaluate_claim(
            paper_claims()[id, part],
            size,
            profile=self.profile,
            holds=holds,
            forms=forms,
            testable=testable,
            provenance=provenance,
        )
        return self._keep(row, "verdict")

    def _keep(self, row: dict[str, Any], answer: str) -> str:
        self._claims.append(row)
        text = json.dumps(self._claims, indent=2, ensure_ascii=False) + "\n"
        files.write_text(self.out / "claims" / f"{self.notebook.name}.json", text)
        return str(row[answer])

    def claims(self) -> pd.DataFrame:
        """Return the claims evaluated so far, with the columns of `claims.csv`."""
        return claim_table.of_results(self._claims)

    def _check(self, name: str, data: pd.DataFrame, rows: Mapping[str, int] | str, caption: str) -> dict[str, int]:
        declared = self.notebook.outputs
        expected, action = "one of " + ", ".join(declared), "Name it in setup(outputs=[...])."
        require(None, f"an output {name!r}", name in declared, expected, action, file=self.notebook.path.name)
        require(None, f"no rows for {name}", not data.empty, "the plotted numbers", "Pass them as data.")

        words = len(caption.split())
        good, found = words <= LONGEST_CAPTION, f"a caption of {words} words for {name}"
        require(None, found, good, f"at most {LONGEST_CAPTION} words", "Shorten it.")

        counts = {rows: len(data)} if isinstance(rows, str) else dict(rows)
        return {kind: counts[kind] for kind in sidecar.check_provenances(counts)}

    def _origin(self, counts: Mapping[str, int]) -> str:
        return self.source.origin if list(counts) == [self.source.provenance] else ""

    def _markdown(self, name: str, data: pd.DataFrame, caption: str) -> None:
        text = f"# {tables.heading(name)}\n\n{tables.to_markdown(data)}\n{caption}\n"
        files.write_text(self.out / f"{name}.md", text)

    def _write(
        self,
        name: str,
        data: pd.DataFrame,
        caption: str,
        counts: Mapping[str, int],
        suffixes: Sequence[str],
        drawn: Mapping[str, object] | None = None,
    ) -> None:
        """Write the numbers, without wall times, and the provenance of an output."""
        numbers = data.drop(columns=WALL_TIME, errors="ignore")
        files.write_text(self.out / f"{name}.csv", tables.to_csv(numbers))
        text = sidecar.sidecar_json(
            name=name,
            caption=caption,
            rows=counts,
            suffixes=suffixes,
            notebook=self.notebook.path,
            parameters=self.parameters,
            drawn=drawn,
            run=self.run,
        )
        files.write_text(self.out / f"{name}.json", text)


def setup(name: str, values: Mapping[str, Any], *, outputs: Sequence[str]) -> Context:
    """Begin a notebook: check its parameters, apply the style, choose the output folder.

    Only the runner (`heshare notebook run`) gives a notebook a folder inside `figures/`. Run interactively, in
    JupyterLab or by papermill, it writes to `build/mine/<name>`, or to its `out_dir`.

    Args:
        name: the notebook's file name without `.ipynb`.
        values: the notebook's `globals()`; only the names of its parameters cell are read.
        outputs: the declared outputs of this notebook, a literal list, which the runner reads from the source.

    Raises:
        InputError: a parameter of the wrong type or missing, an unknown profile; without the runner, an `out_dir` in
            `figures/`.
    """
    given = Path(str(values["out_dir"])) if values.get("out_dir") else None
    run = None if given is None else run_record.read(given)
    source = _source(name, run)
    missing = [key for key in source.defaults if key not in values]
    if missing:
        raise InputError("no " + ", ".join(missing), f"the parameters of notebooks/{source.path.name}", "Define them.")

    parameters = notebook_parameters.check(source, {key: values[key] for key in source.defaults})
    profile = str(parameters.get("profile", "paper"))
    notebook_parameters.check_profile(profile)
    style.apply()
    pd.set_option("display.float_format", number)

    if given is None or run is None:
        of_profile = source.defaults if source.own else notebook_parameters.profile_parameters(source, profile)
        changed = run_record.changed_parameters(parameters, of_profile)
        run = RunRecord(source.name, profile, changed, by_hand=True)
        given = _folder_by_hand(source, given)
        chosen = sources.read(str(parameters.get(run_record.SOURCE, sources.EMULATED)))
        chosen.check(changed)
        _name_cells_to_skip(chosen)
        source = replace(source, outputs=tuple(outputs))
    return Context(source, parameters, given, run)


def _source(name: str, run: RunRecord | None) -> notebook_parameters.Notebook:
    if run is not None and run.path is not None:
        return notebook_parameters.read_own(run.path)
    if notebook_parameters.is_own(f"{name}.ipynb"):
        return notebook_parameters.read_own(f"{name}.ipynb")
    return notebook_parameters.read(notebook_parameters.find([name if run is None else run.notebook])[0])


def _folder_by_hand(notebook: notebook_parameters.Notebook, given: Path | None) -> Path:
    name = notebook.name
    by_default = Path(f"{name}-run") if notebook.own else custom_folder(name)
    out = by_default if given is None else given
    if in_figures(out):
        action = f"Leave it empty for {in_words(custom_folder(name))}, or run: heshare notebook run {name}."
        raise InputError(in_words(out), "a folder outside figures/", action, column="out_dir")
    sys.stdout.write(f"Without `heshare notebook run` outputs go to {in_words(out)}, with the profile custom.\n")
    return out


def _name_cells_to_skip(source: Source) -> None:
    """Print which cells a source cannot answer; `heshare notebook run` leaves them out."""
    for lack in source.lacks():
        sys.stdout.write(f"Skip the cells tagged {sources.TAG}{lack.need}: {lack.reason}.\n")
