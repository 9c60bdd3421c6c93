"""A user's own notebook, run strictly like those of the checkout, also from an installed package.

Its outputs, the executed copy and `run.json` go into one folder: `--out`, or NAME-run in the current folder.
"""

import shlex
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import perf_counter

from heshare.paper.notebooks import parameters as params
from heshare.paper.notebooks.execute_notebook import ExecutedNotebook, check_outputs, run_cells
from heshare.paper.provenance.results_folder import ResultsFolder
from heshare.paper.provenance.run_record import CUSTOM, NAME, RunRecord, changed_parameters
from heshare.shared.errors import InputError


def run_own(path: str | Path, given: Mapping[str, object], out: Path | None) -> ExecutedNotebook:
    """Run a user's notebook and write its results, all or none.

    Cells begin in the folder of the notebook. `notebook.setup(NAME, globals(), outputs=[...])` is optional there; with
    it figures and tables have a sidecar each, and a missing output is an error.

    Args:
        path: the notebook.
        given: parameters that replace those of its cell tagged `parameters`.
        out: the folder of the results; NAME-run in the current folder unless given.

    Raises:
        InputError: no notebook, an unknown parameter or one of another type, or a folder of other results.
        NotebookError: a cell failed or never ran, or a declared output is missing.
    """
    began_s = perf_counter()
    notebook = params.read_own(path)
    for name in params.RESERVED:
        if name in given:
            raise InputError(f"-p {name}=...", "a parameter of your own", "Use the option --out.", column=name)
    values = {**notebook.defaults, **params.check(notebook, given)}
    source = notebook.path.read_bytes()

    words = [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
    command = shlex.join(["heshare", "notebook", "run", str(path), *words])
    place = Path(f"{notebook.name}-run") if out is None else out
    copy = f"{notebook.name}.ipynb"
    results = ResultsFolder.of_command(place, command, [copy], inputs=[notebook.path], parameters=values)

    changed = changed_parameters(values, notebook.defaults)
    record = RunRecord(
        notebook.name,
        CUSTOM,
        changed,
        edited=True,
        notebook_sha256=sha256(source).hexdigest(),
        path=str(notebook.path.resolve()),
    )
    with tempfile.TemporaryDirectory(prefix="heshare-notebook-") as folder:
        staging, executed = Path(folder) / "out", Path(folder) / copy
        staging.mkdir()
        record.write(staging)
        run_cells(
            notebook,
            source.decode("utf-8"),
            {**values, "out_dir": str(staging)},
            executed,
            notebook.path.resolve().parent,
        )
        (staging / NAME).unlink()
        check_outputs(notebook, staging)

        made = {path.relative_to(staging).as_posix(): path for path in sorted(staging.rglob("*")) if path.is_file()}
        results.write({name: partial(shutil.copyfile, file) for name, file in {**made, copy: executed}.items()})

    outputs = tuple(place / name for name in made)
    return ExecutedNotebook(notebook.name, perf_counter() - began_s, outputs, place / copy, place, CUSTOM)
