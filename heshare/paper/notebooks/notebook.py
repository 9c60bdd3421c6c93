"""The context of a notebook: its parameters, random generators, and the saving of figures, tables and claims."""

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

from heshare.paper import tables
from heshare.paper.claims import claim_table
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures import style
from heshare.paper.figures.style import with_origin, write_figure
from heshare.paper.notebooks import notebook_parameters
from heshare.paper.notebooks.output_folders import in_figures, in_words, mine
from heshare.paper.provenance import run_record
from heshare.paper.provenance import sidecar as provenance
from heshare.paper.provenance.run_record import RunRecord
from heshare.paper.provenance.sidecar import DATA_SUFFIXES, FIGURE_SUFFIXES, TABLE_SUFFIXES
from heshare.shared import files, html_tables
from heshare.shared.compiling import compilations
from heshare.shared.display import number
from heshare.shared.errors import DeviceError, InputError, require

_SCREEN_DPI = 150
"""Pixels of the screen to an inch in print."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A written PNG that Jupyter displays in its printed size."""

    path: Path

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        image = self.path.read_bytes()
        return image, {"width": round(_SCREEN_DPI * style.png_size(image)[0] / style.DPI)}


@dataclass(frozen=True, slots=True)
class TablePreview:
    """A written table that Jupyter displays with units, four digits and whole sentences."""

    frame: pd.DataFrame

    def _repr_html_(self) -> str:
        return html_tables.html_frame(self.frame, rows=40)


@dataclass(frozen=True)
class Context:
    """The context of a running notebook; made by `setup`.

    `notebook` is the source, with its defaults and promised outputs, `parameters` the values of this run.
    """

    notebook: notebook_parameters.Notebook
    parameters: dict[str, Any]
    out: Path
    run: RunRecord
    _claims: list[dict[str, object]] = field(default_factory=list)

    @property
    def profile(self) -> str:
        """The profile of the outputs: `smoke`, `paper`, or `custom` for a run by hand or with other parameters."""
        return self.run.profile

    @property
    def cells(self) -> Path:
        """The folder of finished cells, which are kept between runs of a notebook: its parameter `cells_dir`.

        Without one it is the checkout's `build/cells`; for outputs outside the checkout, a folder beside them. Code
        that is not the commit's, which may have changed the package in its process, keeps its own.
        """
        given = str(self.parameters.get("cells_dir", ""))
        if given:
            return Path(given)
        out = self.out.resolve()
        top = files.checkout()
        if top is None or not out.is_relative_to(top):
            return out.parent / f"{out.name}.cells"
        kept_apart = self.run.by_hand or self.run.edited
        return top / "build" / ("mine/cells" if kept_apart else "cells")

    def rng(self, stream: int = 0) -> np.random.Generator:
        """Return a random generator of this notebook's seed; each `stream` is independent of the others."""
        return np.random.default_rng(np.random.SeedSequence([int(self.parameters.get("seed", 0)), stream]))

    def figure(self, rows: int = 1, columns: int = 1, *, height_in: float = 2.1, wide: bool = False, **kw: Any) -> Any:
        """Return a figure of one column's width (or of the page's) and its axes."""
        width_in = style.PAGE_IN if wide else style.COLUMN_IN
        return plt.subplots(rows, columns, figsize=(width_in, height_in), layout="constrained", **kw)

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
            name: one of the promised outputs, such as `fig06_comparison`.
            data: the plotted numbers.
            caption: what is drawn, then setting, intervals and seeds, as sentences; the provenance is put behind it.
            rows: how many rows of `data` are emulated, measured, published; one word when all have the same provenance.
            table: a table to write as Markdown of the same name; True: `data` itself.
            origin: what the caption says of the provenance, if other than "Emulated." and the like.

        Returns:
            The PNG, which a notebook shows.

        Raises:
            InputError: the notebook did not promise this output, or there is no data.
        """
        counts = self._check(name, data, rows)
        text = with_origin(caption, counts, origin)
        drawn = {"legend": style.legend_colours(fig), "smallest_text_pt": style.smallest_text_pt(fig)}
        preview = write_figure(fig, self.out, name, text)
        suffixes = [*FIGURE_SUFFIXES]
        if not isinstance(table, bool) or table:
            self._markdown(name, data if isinstance(table, bool) else table, text)
            suffixes.append(".md")
        self._sidecar(name, data, text, counts, suffixes, drawn)
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

        `shown` is the table for readers, in Markdown, if it is other than `data`, or its columns; for the other
        arguments see `save`.

        Raises:
            InputError: the notebook did not promise this output, or there is no data.
        """
        counts = self._check(name, data, rows)
        text = with_origin(caption, counts, origin)
        readable = data if shown is None else shown if isinstance(shown, pd.DataFrame) else data[list(shown)]
        self._markdown(name, readable, text)
        self._sidecar(name, data, text, counts, TABLE_SUFFIXES)
        return TablePreview(readable)

    def data(self, data: pd.DataFrame, name: str, *, caption: str, rows: Mapping[str, int] | str) -> TablePreview:
        """Write rows that are too many to read, such as single runs, as CSV and JSON (their provenance); return them.

        Raises:
            InputError: the notebook did not promise this output, or there is no data.
        """
        counts = self._check(name, data, rows)
        self._sidecar(name, data, with_origin(caption, counts), counts, DATA_SUFFIXES)
        return TablePreview(data)

    def claim(self, id: str, part: str = "", **values: Any) -> str:
        """Evaluate a claim of the paper and return the verdict; see `claim_table.evaluate_claim`."""
        row = claim_table.evaluate_claim(paper_claims()[id, part], profile=self.profile, **values)
        self._write_claim(row)
        return str(row["verdict"])

    def explain_failure(self, id: str, part: str = "", *, why: str) -> None:
        """Write the reason why a claim of another notebook fails; see `claim_table.explain_failure`."""
        self._write_claim(claim_table.explain_failure(paper_claims()[id, part], why, profile=self.profile))

    def _write_claim(self, row: dict[str, object]) -> None:
        # A row replaces an earlier one of the same claim.
        key = (row["id"], row["part"])
        self._claims[:] = [old for old in self._claims if (old["id"], old["part"]) != key] + [row]
        text = json.dumps(self._claims, indent=2, ensure_ascii=False) + "\n"
        files.write_text(self.out / "claims" / f"{self.notebook.name}.json", text)

    def _check(self, name: str, data: pd.DataFrame, rows: Mapping[str, int] | str) -> dict[str, int]:
        promised = [*self.notebook.outputs, *self.notebook.optional]
        expected, action = "one of " + ", ".join(promised), "Name it in setup(outputs=[...])."
        require(None, f"an output {name!r}", name in promised, expected, action, file=self.notebook.path.name)
        require(None, f"no rows for {name}", not data.empty, "the plotted numbers", "Pass them as data.")
        counts = {rows: len(data)} if isinstance(rows, str) else dict(rows)
        return {kind: counts[kind] for kind in provenance.check_provenances(counts)}

    def _markdown(self, name: str, data: pd.DataFrame, caption: str) -> None:
        files.write_text(
            self.out / f"{name}.md", f"# {tables.heading(name)}\n\n{tables.to_markdown(data)}\n{caption}\n"
        )

    def _sidecar(
        self,
        name: str,
        data: pd.DataFrame,
        caption: str,
        counts: Mapping[str, int],
        suffixes: Sequence[str],
        drawn: Mapping[str, object] | None = None,
    ) -> None:
        files.write_text(self.out / f"{name}.csv", tables.to_csv(data))
        text = provenance.sidecar_json(
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


def setup(name: str, values: Mapping[str, Any], *, outputs: Sequence[str], optional: Sequence[str] = ()) -> Context:
    """Begin a notebook: check its parameters, apply the style, choose the output folder.

    Only the runner (`heshare notebook run`) gives a notebook a folder inside `figures/`. Run by hand, in JupyterLab or
    by papermill, it writes to `build/mine/<name>`, or to its `out_dir`.

    Args:
        name: the notebook's file name without `.ipynb`.
        values: the notebook's `globals()`; only the names of its parameters cell are read.
        outputs: the names that this notebook promises to write, a literal list, which the runner reads from the source.
        optional: names that it writes in some runs only, such as with a recorded GPU; a literal list as well.

    Raises:
        InputError: a parameter of the wrong type or missing, an unknown profile; by hand, an `out_dir` in `figures/`.
        DeviceError: the profile `live`, since `heshare live` measures.
    """
    given = Path(str(values["out_dir"])) if values.get("out_dir") else None
    run = None if given is None else run_record.read(given)
    source = notebook_parameters.read(notebook_parameters.find([name if run is None else run.notebook])[0])
    missing = [key for key in source.defaults if key not in values]
    if missing:
        raise InputError("no " + ", ".join(missing), f"the parameters of notebooks/{source.path.name}", "Define them.")
    parameters = notebook_parameters.check(source, {key: values[key] for key in source.defaults})
    profile = str(parameters["profile"])
    notebook_parameters.check_profile(profile)
    if profile == "live":
        raise DeviceError(
            "live: notebooks draw what was recorded and measure nothing; nothing was run. To measure: make live."
        )
    style.apply()
    pd.set_option("display.float_format", number)
    if given is None or run is None:
        changed = run_record.changed_parameters(parameters, notebook_parameters.profile_parameters(source, profile))
        run = RunRecord(source.name, profile, changed, by_hand=True)
        given = _folder_by_hand(source.name, given)
        source = replace(source, outputs=tuple(outputs), optional=tuple(optional))
    else:
        compilations.tell = lambda text: None  # an executed notebook is the same whatever had to be compiled
    return Context(source, parameters, given, run)


def _folder_by_hand(name: str, given: Path | None) -> Path:
    out = mine(name) if given is None else given
    if in_figures(out):
        action = f"Leave it empty for {in_words(mine(name))}, or run: heshare notebook run {name}."
        raise InputError(in_words(out), "a folder outside figures/ for a run by hand", action, column="out_dir")
    sys.stdout.write(f"Run by hand: outputs go to {in_words(out)}, with the profile custom.\n")
    return out
