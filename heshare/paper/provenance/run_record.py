"""The record of a notebook's run: how it was started, changed parameters, and the code.

The runner (`heshare notebook run`) writes it into the folder of a notebook's outputs. A kernel without a record was
started by a user, in JupyterLab, by papermill or by a script; its outputs are of the profile `custom`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from heshare.shared import files

CUSTOM = "custom"
"""The profile of a run that is not of a notebook's own code with the parameters of one of its profiles."""
NAME = ".run.json"
FOLDER_PARAMETERS = frozenset({"out_dir", "cells_dir"})
"""Parameters that only say where files are."""
SOURCE = "source"
"""The parameter that names the GPUs: its results have a folder of their own, so that it changes no profile."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The record of a notebook's run.

    `requested` is the requested profile, `changed` the parameters that differ from it, `edited` whether the code
    differs from that of the commit, `by_hand` whether no runner started it; the SHA-256 is of the file that the runner
    executed. `path` is that of a user's own notebook.
    """

    notebook: str
    requested: str
    changed: dict[str, Any] = field(default_factory=dict)
    edited: bool = False
    by_hand: bool = False
    notebook_sha256: str | None = None
    path: str | None = None

    @property
    def profile(self) -> str:
        """The profile of the outputs: the requested one, or `custom`.

        Outputs of an edited notebook in the profile smoke have the profile smoke.
        """
        return CUSTOM if self.by_hand or self.changed or (self.edited and self.requested == "paper") else self.requested

    def departures(self) -> str:
        """Return the differences from the profile as text: `tasks = 8, code that differs from the commit's`."""
        words = [f"{name} = {value!r}" for name, value in self.changed.items()]
        return ", ".join([*words, *(["code that differs from the commit's"] if self.edited else [])])

    def write(self, folder: Path) -> None:
        """Write the record into the folder of a notebook's outputs."""
        files.write_text(folder / NAME, json.dumps(asdict(self)) + "\n")

    def fields(self) -> dict[str, Any]:
        """Return the fields of a sidecar on the run."""
        run: dict[str, Any] = {"by": "hand" if self.by_hand else "heshare notebook run"}
        run["changed_parameters"] = dict(sorted(self.changed.items()))
        if not self.by_hand:
            run["edited"] = self.edited
        return {"notebook_sha256": self.notebook_sha256, "profile": self.profile, "run": run}


def read(folder: Path) -> RunRecord | None:
    """Return the runner's record in a folder; None if there is none."""
    path = folder / NAME
    return RunRecord(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def changed_parameters(parameters: Mapping[str, Any], of_profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters whose values differ from the profile's, without folders."""
    names = [name for name in parameters if name in of_profile and name not in FOLDER_PARAMETERS | {"profile", SOURCE}]
    return {name: parameters[name] for name in names if parameters[name] != of_profile[name]}
