"""Provenance of figures and tables: the JSON sidecar beside each output."""

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from heshare.paper.provenance.commit import git_commit, package_sha256
from heshare.paper.provenance.run_record import FOLDER_PARAMETERS, RunRecord
from heshare.shared import files
from heshare.shared.code_version import data_files
from heshare.shared.errors import require
from heshare.shared.version import __version__
from heshare.shared.yaml_nodes import read_values

PROVENANCES = ("emulated", "measured", "published")
FIGURE_SUFFIXES = (".pdf", ".png", ".csv", ".json")
TABLE_SUFFIXES = (".csv", ".md", ".json")
DATA_SUFFIXES = (".csv", ".json")
_PACKAGES = ("numpy", "pandas", "scipy", "scikit-learn", "matplotlib", "pymoo", "moocore")


@cache
def versions() -> dict[str, str]:
    installed = {"python": platform.python_version(), "heshare": __version__}
    for name in _PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


@cache
def input_hashes(notebook: str | None) -> dict[str, str]:
    """Return the SHA-256 of the files of `data/` that a notebook reads, by path.

    `notebooks/inputs.yaml` declares them; a notebook that it does not have may read every file. None: the claims.
    """
    return {path.relative_to(files.data().parent).as_posix(): files.sha256(path) for path in _inputs(notebook)}


def declared_inputs() -> dict[str, list[str] | None]:
    """Return `notebooks/inputs.yaml`: patterns of files of `data/` by notebook, and by `every` those that all read."""
    top = files.checkout()
    path = None if top is None else top / "notebooks" / "inputs.yaml"
    words = ("the notebooks' input files", "Correct the file.")
    return dict(read_values(path, *words)) if path is not None and path.exists() else {}


def _inputs(notebook: str | None) -> list[Path]:
    if notebook is None:
        return [files.data("paper_claims.csv")]
    declared = declared_inputs()
    if notebook not in declared:
        return data_files()
    data = files.data()
    patterns = [*(declared["every"] or []), *(declared[notebook] or [])]
    return sorted({file for pattern in patterns for file in data.glob(pattern) if file.is_file()})


def check_provenances(provenances: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct provenances in the order emulated, measured, published."""
    distinct = set(provenances)
    found, good = ", ".join(sorted(map(str, distinct))) or "nothing", bool(distinct) and distinct <= set(PROVENANCES)
    require("provenance", found, good, "emulated, measured or published", "Name the provenance of the rows.")
    return tuple(provenance for provenance in PROVENANCES if provenance in distinct)


def sidecar_json(
    *,
    name: str,
    caption: str,
    rows: Mapping[str, int],
    suffixes: Sequence[str],
    notebook: Path | None,
    parameters: Mapping[str, object],
    drawn: Mapping[str, object] | None = None,
    run: RunRecord | None = None,
) -> str:
    """Return the JSON text that is written beside an output such as `fig06_comparison`.

    `rows` counts the emulated, measured and published rows. `suffixes` are those of the output's files. `notebook` made
    the output from `parameters`, of which folders are left out; `run` says how. Of a run by hand the file is not known:
    only the notebook whose name it gave. `drawn` is of a figure: `legend`, the colours of each name in its legends, and
    `smallest_text_pt`, the size of its smallest text in print. `heshare_sha256` is null if the package is the commit's.
    """
    check_provenances(rows)
    kept = {key: value for key, value in sorted(parameters.items()) if key not in FOLDER_PARAMETERS}
    # Code that is not the commit's may read every file.
    reader = "" if run is not None and (run.by_hand or run.edited) else notebook and notebook.stem
    content = {
        "name": name,
        "caption": caption,
        "files": [f"{name}{suffix}" for suffix in suffixes],
        **(drawn or {}),
        "provenance": dict(sorted(rows.items())),
        "notebook": None if notebook is None else _below_root(notebook),
        "notebook_sha256": None,
        "profile": kept.get("profile"),
        **({} if run is None or notebook is None else run.fields()),
        "seed": kept.get("seed"),
        "parameters": kept,
        "input_files": input_hashes(None if notebook is None else reader),
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "git_commit": git_commit(),
        "heshare_sha256": package_sha256(),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _below_root(notebook: Path) -> str:
    top = files.checkout()
    if top is not None and notebook.is_relative_to(top / "notebooks"):
        return notebook.relative_to(top).as_posix()
    return f"notebooks/{notebook.name}"
