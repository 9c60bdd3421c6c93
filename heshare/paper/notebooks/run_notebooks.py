"""Parallel execution of notebooks, with a line of output at the start and the end of each."""

import json
import multiprocessing
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT

from joblib import Parallel, delayed

from heshare.paper.notebooks import parameters as params
from heshare.paper.notebooks import stamps
from heshare.paper.notebooks.execute_notebook import ExecutedNotebook, NotebookError, ParameterError, execute
from heshare.paper.notebooks.output_folders import choose, custom_folder
from heshare.paper.notebooks.parameters import Notebook, check_profile, profile_parameters
from heshare.paper.provenance.commit import is_edited
from heshare.paper.provenance.run_record import CUSTOM, SOURCE, RunRecord, changed_parameters
from heshare.paper.studies import sources
from heshare.paper.studies.sources import Source
from heshare.shared import files
from heshare.shared.errors import HeShareError, InputError
from heshare.shared.signals import ignore

SECONDS = "seconds.json"


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """One notebook to run, with its parameters and the folder of its outputs."""

    notebook: Notebook
    values: dict[str, object]
    record: RunRecord
    out: Path

    @property
    def source(self) -> Source:
        """The GPUs of its figures."""
        return sources.read(str(self.values.get(SOURCE, sources.EMULATED)))

    @property
    def copies(self) -> Path:
        """The folder of the executed copy: one for each source and profile, and one for experiments."""
        kind = CUSTOM if self.out.is_relative_to(custom_folder(self.notebook.name)) else self.record.profile
        return copies_of(self.source) / kind

    @property
    def stamp(self) -> str:
        """The current stamp of the outputs, which also depend on the records of the source."""
        return stamps.stamp(self.notebook.path, self.values, [record.path for record in self.source.records])


def copies_of(source: Source) -> Path:
    """Return the folder of executed notebooks, by profile."""
    folder = files.workplace() / "build" / "notebooks"
    return folder if source.is_default else folder / source.folder


def prepare(
    paths: Sequence[Path], profile: str, given: Mapping[str, object], out: Path | None = None
) -> list[NotebookRun]:
    """Return each notebook with the parameters of this run: the profile's, replaced by those given.

    Raises:
        InputError: a given parameter is unknown to a chosen notebook or has another type, or names a recorded GPU that
            does not exist; or `out` is `figures/` for other outputs than the paper's (`output_folders.choose`). No
            notebook has run.
    """
    check_profile(profile)
    runs = []
    for path in paths:
        notebook = params.read(path)
        for name in params.RESERVED:
            if name in given:
                raise InputError(f"-p {name}=...", f"--{name.split('_')[0]}", "Use that option.", column=name)
        of_profile = profile_parameters(notebook, profile)
        values = {**of_profile, **params.check(notebook, given)}
        source = None
        if SOURCE in values:
            values[SOURCE] = sources.absolute(str(values[SOURCE]))
            source = sources.read(str(values[SOURCE]))
            source.check({name: values[name] for name in given if name in values})
        record = RunRecord(notebook.name, profile, changed_parameters(values, of_profile), is_edited(path))
        runs.append(NotebookRun(notebook, values, record, choose(record, out, source)))
    return runs


def run(
    paths: Sequence[Path],
    *,
    profile: str,
    given: Mapping[str, object],
    out: Path | None = None,
    jobs: int = 2,
    quiet: bool = False,
    fresh: bool = False,
) -> list[ExecutedNotebook]:
    """Run notebooks in parallel processes, `jobs` at a time; figures, tables and claims go into the folder `out`.

    A notebook whose outputs have its current stamp (`stamps`) is not run again, unless `fresh`.

    The parameters `given` replace those of the profile (`smoke` or `paper`). Without `out` the outputs of each notebook
    go into the folder of `output_folders.choose`. Notebooks start in the order of `paths`. With `quiet` nothing is
    printed. The seconds of each notebook are written to `SECONDS` in the folder of the executed copies.

    Raises:
        InputError: as `prepare`; no notebook has run.
        NotebookError: one or more notebooks failed; the outputs of the others are written.
    """
    runs = prepare(paths, profile, given, out)
    now = {each.notebook.name: each.stamp for each in runs}
    for source in {each.source for each in runs}:
        source.prepare()
    executed = [] if fresh else [done for each in runs if (done := _as_stamped(each, now[each.notebook.name]))]
    if executed:
        _report(f"{len(executed)} of {len(runs)} notebooks are up to date; --fresh runs them again", quiet=quiet)

    there = {each.name for each in executed}
    waiting = {each.notebook.name: each for each in runs if each.notebook.name not in there}
    failed: dict[str, HeShareError] = {}
    try:
        pool = Parallel(n_jobs=min(jobs, len(waiting) or 1), return_as="generator_unordered", batch_size=1)
        with closing(pool(delayed(_execute)(each, quiet=quiet) for each in waiting.values())) as results:
            for count, (name, result) in enumerate(results, start=1):
                outcome = "failed"
                if isinstance(result, ExecutedNotebook):
                    executed.append(result)
                    _keep(waiting[name], now[name], result)
                    outcome = f"{result.seconds:.1f} s, {len(result.outputs)} files"
                else:
                    failed[name] = result
                _report(f"[{count:{len(str(len(waiting)))}}/{len(waiting)}] {name}: {outcome}", quiet=quiet)
    except KeyboardInterrupt:
        for each in runs:
            for staging in each.out.glob(f".{each.notebook.name}-*"):
                shutil.rmtree(staging, ignore_errors=True)
        raise

    executed.sort(key=lambda each: each.name)
    if failed:
        names = ", ".join(each.name for each in executed)
        others = [f"The outputs of the others are in place: {names}."] if executed else []
        wrong = all(isinstance(each, ParameterError) for each in failed.values())
        kind = ParameterError if wrong else NotebookError
        raise kind("\n".join([*(str(failed[name]) for name in sorted(failed)), *others]))
    return executed


def _as_stamped(run: NotebookRun, now: str) -> ExecutedNotebook | None:
    outputs = stamps.outputs_as_stamped(run.copies.parent, _place(run), now)
    copy = run.copies / run.notebook.path.name
    # The executed copy is of the last run, which may have had another folder.
    if outputs is None or not (copy.is_file() and f'"{run.out}' in copy.read_text(encoding="utf-8")):
        return None
    return ExecutedNotebook(run.notebook.name, 0.0, tuple(outputs), copy, run.out, run.record.profile)


def _keep(run: NotebookRun, now: str, result: ExecutedNotebook) -> None:
    stamps.write(run.copies.parent, _place(run), now, result.outputs)

    timed, earlier = run.copies / SECONDS, dict[str, float]()
    with suppress(OSError, ValueError):
        earlier = json.loads(timed.read_text(encoding="utf-8"))
    text = json.dumps({**earlier, result.name: round(result.seconds, 1)}, indent=1, sort_keys=True)
    files.write_text(timed, text + "\n")


def _place(run: NotebookRun) -> str:
    return f"{run.notebook.name} in {run.out}"


def _execute(run: NotebookRun, *, quiet: bool) -> tuple[str, ExecutedNotebook | HeShareError]:
    if multiprocessing.parent_process() is not None:
        # Ctrl-C reaches the whole process group; the process that started this one ends it.
        ignore((SIGINT,))
    name = run.notebook.name
    _report(f"{name}: started", quiet=quiet)
    try:
        return name, execute(run.notebook, run.values, run.out, run.copies, run.record)
    except HeShareError as error:
        return name, error
    except Exception as error:
        return name, NotebookError(f"{name}: {type(error).__name__}: {error}")


def _report(text: str, *, quiet: bool) -> None:
    if not quiet:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
