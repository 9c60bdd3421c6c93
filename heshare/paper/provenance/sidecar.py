"""Provenance of figures and tables: the JSON sidecar of each output."""

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from heshare.paper.provenance.commit import git_commit, package_sha256
from heshare.paper.provenance.run_record import FOLDER_PARAMETERS, RunRecord
from heshare.shared import files
from heshare.shared.errors import require
from heshare.shared.version import __version__

PROVENANCES = ("emulated", "fitted", "measured", "published")
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
def data_sha256() -> str:
    """Return a SHA-256 over the files of `data/`: over the lines "<SHA-256 of the file> <path>", sorted by path."""
    top = files.data()
    paths = [path for path in sorted(top.rglob("*")) if path.is_file()]
    lines = [f"{files.sha256(path)} {path.relative_to(top).as_posix()}\n" for path in paths]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def code_and_data() -> dict[str, object]:
    """Return the fields of a sidecar on code, data and libraries."""
    return {
        "data_sha256": data_sha256(),
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "git_commit": git_commit(),
        "heshare_sha256": package_sha256(),
    }


def check_provenances(provenances: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct provenances in the order of `PROVENANCES`."""
    distinct = set(provenances)
    found, good = ", ".join(sorted(map(str, distinct))) or "nothing", bool(distinct) and distinct <= set(PROVENANCES)
    require("provenance", found, good, ", ".join(PROVENANCES), "Name the provenance of the rows.")
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
    """Return the JSON text of the sidecar of an output such as `fig06_comparison`.

    `rows` counts the rows of each provenance. `suffixes` are those of the output's files. `notebook` made
    the output from `parameters`, without folders; `run` describes the run. Without the runner only the
    name of the notebook is known. `drawn` is of a figure: `legend`, the colours of each name in its legends, and
    `smallest_text_pt`, the size of its smallest text in print. `heshare_sha256` is null if the package is the commit's.
    """
    check_provenances(rows)
    kept = {key: value for key, value in sorted(parameters.items()) if key not in FOLDER_PARAMETERS}
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
        **code_and_data(),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _below_root(notebook: Path) -> str:
    top = files.checkout()
    if top is not None and notebook.is_relative_to(top / "notebooks"):
        return notebook.relative_to(top).as_posix()
    return notebook.name
