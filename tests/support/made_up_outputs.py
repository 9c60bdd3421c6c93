"""A small folder of outputs as `make figures` leaves it: claims, figures, tables, data and an executed notebook."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd

from heshare.lab.sweeps.statistics import ConfidenceInterval
from heshare.paper import tables
from heshare.paper.claims.claim_table import evaluate_claim
from heshare.paper.claims.factorial import AXES
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.page import fig6_plans
from heshare.paper.page.first_screen import CELLS, RANGES
from heshare.paper.provenance import sidecar
from heshare.shared import files

FIGURES = ("fig01_energy", "fig06_comparison", "x04b_plane")
WIDE = ("fig06_comparison", "x04b_plane")
NOTEBOOK = "04_comparison"


def write_outputs(folder: Path, figures: Sequence[str] = FIGURES, profile: str = "paper") -> Path:
    """Write the outputs into `folder` and return the folder of the executed notebooks, by profile."""
    folder.mkdir(parents=True)
    for name in figures:
        _figure(folder, name, profile)
    _tables(folder, profile)
    _claims(folder, profile)
    _numbers(folder, profile)
    files.write_text(folder / fig6_plans.NAME, "<title>Plans</title>\n")

    copies = folder.parent / "copies" / profile
    copies.mkdir(parents=True)
    nbformat.write(_notebook(folder, folder), copies / f"{NOTEBOOK}.ipynb")
    nbformat.write(_notebook(folder, folder / "elsewhere"), copies / "01_motivation.ipynb")
    return copies.parent


def _sidecar(folder: Path, name: str, suffixes: tuple[str, ...], profile: str) -> None:
    notebooks = {"fig01": "01_motivation", "table5": "03_prediction"}
    notebook = notebooks.get(name.split("_")[0], NOTEBOOK)
    text = sidecar.sidecar_json(
        name=name,
        caption=f"Trade-off takes 38 % less energy in {name}. Medians, 95 % intervals, 10 seeds. Emulated.",
        rows={"emulated": 3},
        suffixes=suffixes,
        notebook=files.root() / "notebooks" / f"{notebook}.ipynb",
        parameters={"profile": profile, "seed": 0, "out_dir": str(folder)},
    )
    files.write_text(folder / f"{name}.json", text)


def _figure(folder: Path, name: str, profile: str) -> None:
    import matplotlib.pyplot as plt

    from heshare.paper.figures import style

    with style.using():
        fig, ax = plt.subplots(figsize=(style.PAGE_IN, 2.4) if name in WIDE else (style.COLUMN_IN, 1.8))
        ax.plot([0, 1], [0, 1])
        style.write_figure(fig, folder, name, f"{name}: a caption of some words. " * 12)
    files.write_text(folder / f"{name}.csv", "a,b\n1,2\n")
    _sidecar(folder, name, sidecar.FIGURE_SUFFIXES, profile)


def _tables(folder: Path, profile: str) -> None:
    wide = pd.DataFrame({"model": ["RF", "MLP | x"], **{f"column_{i}_of_a_table_pct": [1.5, i] for i in range(12)}})
    for name, frame in (("table5_predictors", wide), ("x04a_changes", wide[["model"]])):
        files.write_text(folder / f"{name}.csv", tables.to_csv(frame))
        files.write_text(folder / f"{name}.md", f"# {name}\n\n{tables.to_markdown(frame)}\nA caption.\n")
        _sidecar(folder, name, sidecar.TABLE_SUFFIXES, profile)
    files.write_text(folder / "x04c_runs.csv", "a\n1\n")
    _sidecar(folder, "x04c_runs", sidecar.DATA_SUFFIXES, profile)


def _numbers(folder: Path, profile: str) -> None:
    """Write the numbers of the first screen into the CSV files that it reads."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for place, cell in enumerate([*CELLS.values(), *RANGES.values()]):
        row = {column: known if isinstance(known, str) else known[0] for column, known in cell.row.items()}
        numbers = {cell.value: place - 4.04, cell.low: place - 5.0, cell.high: place - 3.0}
        rows.setdefault(cell.output, []).append({**row, **numbers})

    choices = {axis: f"a choice of {axis}" for axis in AXES}
    rows["x08b_cells"] = [
        {**choices, "shipped": False, "held": 6},
        {**dict.fromkeys(AXES, "as shipped"), "shipped": True, "held": 1},
    ]
    rows["x08e_effects"] = [{"axis": axis, "change": 3.0 + place} for place, axis in enumerate(AXES)]
    for output, found in rows.items():
        files.write_text(folder / f"{output}.csv", tables.to_csv(pd.DataFrame(found)))
        _sidecar(folder, output, sidecar.DATA_SUFFIXES, profile)


def _claims(folder: Path, profile: str) -> None:
    rows = []
    for claim in paper_claims().values():
        if claim.where == "EaCO":
            continue  # not made yet
        if claim.kind == "ordering":
            rows.append(evaluate_claim(claim, None, holds={"one": True, "two": claim.id != "H5"}, profile=profile))
            continue
        value = 2.0 if claim.kind == "lead" else claim.value * (1.6 if claim.id in ("H1", "P1") else 1.0)
        size = ConfidenceInterval(value, value - 1, value + 1, 10)
        forms = {"placed": size, "best": ConfidenceInterval(2.0, 1.0, 3.0, 10)} if claim.id in ("H1", "H2") else None
        holds = {"from the same start": True} if claim.kind == "lead" else None
        rows.append(evaluate_claim(claim, size, holds=holds, forms=forms, profile=profile))
    files.write_text(folder / "claims" / f"{NOTEBOOK}.json", json.dumps(rows))


def _notebook(folder: Path, out: Path) -> nbformat.NotebookNode:
    root = files.root()
    staging = f"{out}/.{NOTEBOOK}-ab12cd_3"
    shown = f"Preview(path=PosixPath('{staging}/fig06_comparison.png'))"
    picture = base64.b64encode((folder / "fig06_comparison.png").read_bytes()).decode()
    wide = "".join(f"<td>some_wide_column_{number}</td>" for number in range(20))
    table = f"<div><style scoped>td {{}}</style><table><tr>{wide}</tr></table></div>"
    outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="100%|####| 230/230 [01:55<00:00]"),
        nbformat.v4.new_output("display_data", {"image/png": picture, "text/plain": shown}),
        nbformat.v4.new_output("execute_result", {"text/plain": f"{root}/data/gpus.csv"}, execution_count=1),
        nbformat.v4.new_output("execute_result", {"text/html": table, "text/plain": "1"}, execution_count=1),
    ]
    cells = [
        nbformat.v4.new_markdown_cell("# Comparison (Fig. 6)\n\nWords.", id="one"),
        nbformat.v4.new_code_cell(f'out_dir = "{staging}"', id="two", execution_count=1),
        nbformat.v4.new_code_cell("print(1)  # a comment", id="three", outputs=outputs, execution_count=2),
    ]
    about = {"parameters": {"out_dir": staging}, "output_path": f"{root}/build/{NOTEBOOK}.ipynb"}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"papermill": about, "kernelspec": kernel})
