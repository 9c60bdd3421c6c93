"""The folders of outputs: `figures/` for the paper's, `build/<profile>` for others, `build/mine` for experiments.

Only the runner writes to `figures/`, and only outputs of a notebook of the commit with the paper's parameters.
"""

from pathlib import Path

from heshare.paper.notebooks.parameters import check_profile
from heshare.paper.provenance import commit
from heshare.paper.provenance.run_record import CUSTOM, RunRecord
from heshare.paper.studies.sources import Source
from heshare.shared import files
from heshare.shared.errors import require

PAGE = "index.html"
"""The page of results in a folder of outputs."""


def folder_for(profile: str) -> Path:
    """Return the folder of a profile's outputs: `figures/` for the paper's, `build/<profile>/` for others.

    Raises:
        InputError: no such profile.
    """
    check_profile(profile)
    return files.workplace() / ("figures" if profile == "paper" else f"build/{profile}")


def custom_folder(notebook: str) -> Path:
    return files.workplace() / "build" / "mine" / notebook


def in_figures(folder: Path) -> bool:
    """Return whether a folder is the checkout's `figures/` or inside it."""
    return folder.resolve().is_relative_to((files.workplace() / "figures").resolve())


def in_words(folder: Path) -> str:
    """Return a folder as text, relative to the checkout if it is inside it."""
    top = files.checkout()
    return f"{folder.relative_to(top) if top is not None and folder.is_relative_to(top) else folder}/"


def choose(record: RunRecord, given: Path | None, source: Source | None = None) -> Path:
    """Return the folder for the outputs of a run by the runner; those of another source have a folder in it.

    Without a given folder, outputs go to the profile's folder, or to `build/mine` if parameters, the
    notebook's code or the package's code differ from the profile and the commit.

    Raises:
        InputError: it is `figures/`, and the notebook is not of the commit, or has other parameters than the paper's.
            A changed package is accepted there and recorded in the sidecars (`heshare_sha256`).
    """
    below = "" if source is None or source.is_default else source.folder
    return _choose(record, given) / below


def _choose(record: RunRecord, given: Path | None) -> Path:
    if given is None:
        # Outside a clone, changes of the package cannot be detected.
        changed = (
            record.requested == "paper" and commit.git_commit() is not None and commit.package_sha256() is not None
        )
        return custom_folder(record.notebook) if changed or record.profile == CUSTOM else folder_for(record.requested)
    good = record.profile == "paper" or not in_figures(given)
    found = f"{record.notebook} with {record.departures() or f'the profile {record.requested}'}"
    expected = "for figures/ a notebook as it is in the commit, with the parameters of the profile paper"
    where = in_words(custom_folder(record.notebook))
    action = f"Leave out --out, which writes to {where}; or commit what the paper is to have."
    require("--out", found, good, expected, action)
    return given
