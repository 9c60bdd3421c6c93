"""A small folder of outputs as `make figures` leaves it: claims, figures, tables, data and an executed notebook."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pandas as pd

from heshare.paper import tables
from heshare.paper.claims import claim_table
from heshare.paper.claims.claim_table import evaluate_claim
from heshare.paper.claims.verdicts import paper_claims
from heshare.paper.figures import style
from heshare.paper.provenance import sidecar as provenance
from heshare.shared import files

COMMON = {"n": 10, "provenance": "emulated", "profile": "paper"}
SIZES = ("1", "2", "4", "5", "8", "16", "32", "mixed", "4 8")
FIGURES = ("fig01_energy", "fig06_comparison", "x12a_sensitivity", "x03a_errors", "x05d_parts")
_SOURCE = "x05c_forms.csv: change_pct where ours=x"
_FORMS = {"placed": (-20.0, -25.0, -15.0), "best": (2.0, 1.0, 3.0)}


def write_outputs(folder: Path) -> Path:
    """Write the outputs into `folder` and return the folder of the executed notebooks beside it."""
    folder.mkdir(parents=True)
    for name in FIGURES:
        _figure(folder, name)
    _tables(folder)
    _strips(folder)
    _claims(folder)
    claim_table.write(folder)
    copies = folder.parent / "copies"
    copies.mkdir()
    nbformat.write(_notebook(folder, folder), copies / "05_comparison.ipynb")
    nbformat.write(_notebook(folder, folder / "elsewhere"), copies / "06_search.ipynb")
    return copies


def _sidecar(folder: Path, name: str, suffixes: tuple[str, ...], notebook: str) -> None:
    text = provenance.sidecar_json(
        name=name,
        caption=f"Trade-off takes 38 % less energy in {name}. Medians of `metric` (Fig. x05d). Emulated.",
        rows={"emulated": 3},
        suffixes=suffixes,
        notebook=files.root() / "notebooks" / f"{notebook}.ipynb",
        parameters={"profile": "paper", "seed": 0, "out_dir": str(folder)},
    )
    files.write_text(folder / f"{name}.json", text)


def _of(name: str) -> str:
    books = {"fig01": "01_motivation", "fig06": "05_comparison", "x12a": "12_sensitivity", "x03a": "03_platform"}
    return books.get(name.split("_")[0], "05_comparison")


def _figure(folder: Path, name: str) -> None:
    with style.using():
        fig, ax = plt.subplots(figsize=(style.PAGE_IN if name.startswith("x12") else 3.33, 1.5))
        ax.plot([0, 1], [0, 1])
        style.write_figure(fig, folder, name, f"{name}: a caption of some words. " * 12)
    files.write_text(folder / f"{name}.csv", "a,b\n1,2\n")
    _sidecar(folder, name, provenance.FIGURE_SUFFIXES, _of(name))


def _tables(folder: Path) -> None:
    wide = pd.DataFrame(
        {"model": ["RF", "MLP | x"], **{f"column_{i}_of_a_wide_table_pct": [1.5, i] for i in range(12)}}
    )
    metrics = [("energy_active_j", 3.2), ("avg_jct_s", -3.1)]
    rows = [("Trade-off", "SRTF at 0.8 clock", "baseline", metric, value) for metric, value in metrics]
    forms = pd.DataFrame(rows, columns=["ours", "rival", "form", "metric", "change_pct"])
    for name, frame in (("table5_predictors", wide), ("x05c_forms", forms)):
        files.write_text(folder / f"{name}.csv", tables.to_csv(frame))
        files.write_text(folder / f"{name}.md", f"# {name}\n\n{tables.to_markdown(frame)}\nA caption.\n")
        _sidecar(folder, name, provenance.TABLE_SUFFIXES, "05_comparison" if name[0] == "x" else "04_prediction")
    files.write_text(folder / "x05a_runs.csv", "a\n1\n")
    _sidecar(folder, "x05a_runs", provenance.DATA_SUFFIXES, "05_comparison")


def _strips(folder: Path) -> None:
    """Write notebook 24's tables: six claims over the inference batch sizes, and claims by choice."""
    strips = [
        ("ResNet-50, T4 over A100", "M2", "", "x", "2.5x", 1.0, 0.6),
        ("BERT, T4 over A100", "M3", "", "x", "> 5x", 3.5, 1.3),
        ("Slowdown of pairs on the A100", "M7", "", "%", "", 2.0, 9.0),
        ("Energy against Morak", "H1", "energy", "%", "-26", -29.0, -1.8),
        ("Average JCT against Random", "H4", "Random", "%", "-48", -46.0, -4.0),
        ("Energy without sharing", "", "", "%", "", 8.4, -1.0),
    ]
    rows: list[dict[str, object]] = []
    choices: list[dict[str, object]] = []
    for place, sizes in enumerate(SIZES):
        step = {"4 8": 3.5, "mixed": 4.5}.get(sizes, place)
        for strip, id, part, unit, paper, start, slope in strips:
            value, number = start + slope * step, float(re.sub("[^-0-9.]", "", paper) or "nan")
            found = {"value": value, "low": value - abs(slope), "high": value + abs(slope), "paper": paper, "n": 6}
            near = abs(value - number) <= abs(slope)
            verdict = "" if not paper else "reproduced" if near else "not reproduced"
            rest = {"id": id, "part": part, **found, "verdict": verdict, "provenance": "emulated"}
            rows.append({"strip": strip, "unit": unit, "batch_sizes": sizes, "is_default": sizes == "4 8", **rest})
            choices.append({"axis": "inference batch size", "choice": sizes, "batch_sizes": sizes, **rest})
            if sizes == "4 8":
                choices += [{"axis": "precision", "choice": each, **rest} for each in ("FP32", "TF32")]
    for name, table in (("x24a_strips", rows), ("x24b_choices", choices)):
        files.write_text(folder / f"{name}.csv", tables.to_csv(pd.DataFrame(table)))
        _sidecar(folder, name, provenance.DATA_SUFFIXES, "05_comparison")


def _claims(folder: Path) -> None:
    rows = []
    for claim in paper_claims().values():
        if claim.id in ("R4", "U5"):
            continue
        if claim.kind == "ordering":
            rows.append(
                evaluate_claim(replace(claim, source=""), holds={"one": True, "two": claim.id != "H5"}, **COMMON)
            )  # type: ignore[arg-type]
            continue
        value = claim.value * (1.6 if claim.id in ("H1", "P1") else 1.0)
        forms = _FORMS if claim.id in ("H1", "H2") else None
        found = {"measured": value, "low": value - 1, "high": value + 1, "forms": forms, "note": "Long words. " * 20}
        rows.append(evaluate_claim(replace(claim, source=_SOURCE), **found, **COMMON))  # type: ignore[arg-type]
    files.write_text(folder / "claims" / "05_comparison.json", json.dumps(rows))


def _notebook(folder: Path, out: Path) -> nbformat.NotebookNode:
    root = files.root()
    staging = f"{out}/.05_comparison-ab12cd_3"
    picture = base64.b64encode((folder / "fig06_comparison.png").read_bytes()).decode()
    wide = "".join(f"<td>some_wide_column_{number}</td>" for number in range(20))
    table = f"<div><style scoped>td {{}}</style><table><tr>{wide}</tr></table></div>"
    outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="100%|####| 230/230 [01:55<00:00]"),
        nbformat.v4.new_output("display_data", {"image/png": picture, "text/plain": f"Preview('{staging}/x.png')"}),
        nbformat.v4.new_output("execute_result", {"text/plain": f"{root}/data/gpus.csv"}, execution_count=1),
        nbformat.v4.new_output("execute_result", {"text/html": table, "text/plain": "1"}, execution_count=1),
    ]
    cells = [
        nbformat.v4.new_markdown_cell("# Comparison (Fig. 6)\n\nWords.", id="one"),
        nbformat.v4.new_code_cell(f'out_dir = "{staging}"', id="two", execution_count=1),
        nbformat.v4.new_code_cell("print(1)  # a comment", id="three", outputs=outputs, execution_count=2),
    ]
    about = {"parameters": {"out_dir": staging}, "output_path": f"{root}/build/05_comparison.ipynb"}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"papermill": about, "kernelspec": kernel})
