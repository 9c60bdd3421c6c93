"""Execution of many notebooks, a few at a time, with a line at the start and the end of each."""

import json
import multiprocessing
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT

from heshare.ops.recording import recordings
from heshare.paper.notebooks import notebook_parameters as params
from heshare.paper.notebooks.execute_notebook import ExecutedNotebook, NotebookError, execute
from heshare.paper.notebooks.notebook_parameters import Notebook
from heshare.paper.notebooks.output_folders import choose, mine
from heshare.paper.notebooks.profiles import check_profile, expected_parameters, longest, profile_parameters
from heshare.paper.provenance.commit import is_edited
from heshare.paper.provenance.run_record import CUSTOM, RunRecord, changed_parameters
from heshare.shared import files
from heshare.shared.errors import HeShareError, InputError
from heshare.shared.signals import ignore


class RunLog:
    """Prints a line at the start and at the end of each notebook of a run.

    Args:
        names: the notebooks to run.
        jobs: how many run at a time.
        past: JSON file with the seconds of each notebook in the last run; written again at the end of each notebook.
        quiet: print nothing.
    """

    def __init__(self, names: Sequence[str], jobs: int, past: Path, *, quiet: bool = False) -> None:
        self._total, self._jobs, self._past, self._quiet = len(names), jobs, past, quiet
        self._known = _read(past)
        self._waiting = list(names)
        self._since_s: dict[str, float] = {}
        self._done = 0

    def start(self, name: str) -> None:
        """Print that a notebook starts."""
        self._waiting.remove(name)
        self._since_s[name] = time.monotonic()
        self._print(name, "started")

    def end(self, name: str, seconds: float | None, outcome: str) -> None:
        """Print that a notebook has ended, after so many seconds (None: it failed), and how."""
        self._done += 1
        del self._since_s[name]
        if seconds is not None:
            self._known[name] = round(seconds, 1)
            files.write_text(self._past, json.dumps(self._known, indent=1, sort_keys=True) + "\n")
        left_s = self.left_s()
        left = "" if left_s is None or self._done == self._total else f"; about {_rounded(left_s)} left"
        self._print(name, outcome + left)

    def left_s(self) -> float | None:
        """Return the time that is left, s; None if a notebook that has not ended was never timed."""
        open_names = [*self._waiting, *self._since_s]
        if any(name not in self._known for name in open_names):
            return None
        now_s = time.monotonic()
        running_s = [max(0.0, self._known[name] - (now_s - since_s)) for name, since_s in self._since_s.items()]
        waiting_s = sum(self._known[name] for name in self._waiting)
        return max([(waiting_s + sum(running_s)) / self._jobs, *running_s])

    def _print(self, name: str, text: str) -> None:
        if not self._quiet:
            width = len(str(self._total))
            sys.stderr.write(f"[{self._done:{width}}/{self._total}] {name}: {text}\n")
            sys.stderr.flush()


def _read(past: Path) -> dict[str, float]:
    """Return the seconds of each notebook in the last run; none from a file that cannot be read."""
    try:
        known = json.loads(past.read_text(encoding="utf-8"))
        return {str(name): float(seconds) for name, seconds in known.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


_Result = tuple[str, ExecutedNotebook | HeShareError]


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """One notebook to run.

    Attributes:
        notebook: the source.
        values: its parameters.
        record: what of them differs from the profile, and whether its code differs from the commit's.
        out: the folder of its outputs.
    """

    notebook: Notebook
    values: dict[str, object]
    record: RunRecord
    out: Path

    @property
    def copies(self) -> Path:
        """The folder of the executed copy: one for each profile, and one for experiments."""
        kind = CUSTOM if self.out == mine(self.notebook.name) else self.record.profile
        return files.root() / "build" / "notebooks" / kind

    def execute(self) -> ExecutedNotebook:
        """Execute the notebook."""
        return execute(self.notebook, self.values, self.out, self.copies, self.record)


def prepare(
    paths: Sequence[Path], profile: str, given: Mapping[str, object], out: Path | None = None
) -> list[NotebookRun]:
    """Return each notebook with the parameters of this run: the profile's, replaced by those given.

    Raises:
        InputError: a given parameter is unknown to a chosen notebook or has another type, or names a recorded GPU that
            does not exist; or `out` is `figures/`, for what is not the paper's (`output_folders.choose`). Nothing has
            run yet.
    """
    check_profile(profile)
    runs = []
    for path in paths:
        notebook = params.read(path)
        for name in params.RESERVED:
            if name in given:
                raise InputError(f"-p {name}=...", f"--{name.split('_')[0]}", "Use that option.", column=name)
        values = {**profile_parameters(notebook, profile), **params.check(notebook, given)}
        recordings.read(str(values.get("source", recordings.EMULATED)))
        changed = changed_parameters(values, expected_parameters(notebook, profile))
        record = RunRecord(notebook.name, profile, changed, is_edited(path))
        runs.append(NotebookRun(notebook, values, record, choose(record, out)))
    return runs


def run(
    paths: Sequence[Path],
    *,
    profile: str,
    given: Mapping[str, object],
    out: Path | None = None,
    jobs: int = 2,
    quiet: bool = False,
) -> list[ExecutedNotebook]:
    """Run notebooks in parallel processes, `jobs` at a time; figures, tables and claims go into the folder `out`.

    The parameters `given` replace those of the profile (`smoke`, `paper` or `live`). Without `out` the outputs of each
    notebook go where `output_folders.choose` says. With `quiet` nothing is printed.

    Raises:
        InputError: as `prepare`; nothing has run.
        NotebookError: one or more notebooks failed; the outputs of the others are in place.
    """
    runs = prepare(paths, profile, given, out)
    kept = {run.copies for run in runs}
    past = kept.pop() if len(kept) == 1 else files.root() / "build" / "notebooks" / CUSTOM
    log = RunLog([run.notebook.name for run in runs], jobs, past / "seconds.json", quiet=quiet)
    if jobs == 1 or len(runs) == 1:
        results = []
        for run in runs:
            log.start(run.notebook.name)
            results.append(_ended(log, run.notebook.name, _try(run)))
        return _results(results)
    context = multiprocessing.get_context("spawn")
    # Ctrl-C reaches the whole process group. The workers ignore it: this process terminates them, and a terminated
    # worker shuts its kernel down.
    with ProcessPoolExecutor(
        min(jobs, len(runs)), mp_context=context, initializer=ignore, initargs=((SIGINT,),)
    ) as pool:
        try:
            return _results(_follow(pool, _longest_first(runs), jobs, log))
        except KeyboardInterrupt:
            _stop(pool)
            for run in runs:
                for staging in run.out.glob(f".{run.notebook.name}-*"):
                    shutil.rmtree(staging, ignore_errors=True)
            raise


def _longest_first(runs: Sequence[NotebookRun]) -> list[NotebookRun]:
    """Return the notebooks with the longest first, in the order of `profiles.yaml`, so that a short one starts last."""
    order = {name: position for position, name in enumerate(longest())}
    return sorted(runs, key=lambda run: order.get(run.notebook.name, len(order)))


def _stop(pool: ProcessPoolExecutor) -> None:
    workers = list(pool._processes.values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(timeout=10)


def _try(run: NotebookRun) -> ExecutedNotebook | HeShareError:
    try:
        return run.execute()
    except HeShareError as error:
        return error


def _follow(pool: ProcessPoolExecutor, runs: Sequence[NotebookRun], jobs: int, log: RunLog) -> list[_Result]:
    """Run notebooks in the pool, the next one whenever one ends, so that the log has the time at which each starts."""
    waiting, results = list(runs), []
    pending: dict[Future[ExecutedNotebook], str] = {}
    while waiting or pending:
        while waiting and len(pending) < jobs:
            run = waiting.pop(0)
            log.start(run.notebook.name)
            pending[pool.submit(run.execute)] = run.notebook.name
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            name, error = pending.pop(future), future.exception()
            if error is not None and not isinstance(error, HeShareError):
                error = NotebookError(f"{name}: {type(error).__name__}: {error}")
            results.append(_ended(log, name, error if error is not None else future.result()))
    return results


def _ended(log: RunLog, name: str, result: ExecutedNotebook | HeShareError) -> _Result:
    if isinstance(result, ExecutedNotebook):
        log.end(name, result.seconds, f"{result.seconds:.1f} s, {len(result.outputs)} files")
    else:
        log.end(name, None, "failed")
    return name, result


def _results(results: Sequence[tuple[str, ExecutedNotebook | HeShareError]]) -> list[ExecutedNotebook]:
    """Return the notebooks by name; raise one error of all that failed."""
    failed = [str(result) for _, result in sorted(results, key=lambda pair: pair[0]) if isinstance(result, Exception)]
    if failed:
        done = sorted(name for name, result in results if isinstance(result, ExecutedNotebook))
        others = [f"The outputs of the others are in place: {', '.join(done)}."] if done else []
        raise NotebookError("\n".join([*failed, *others]))
    return sorted((result for _, result in results if isinstance(result, ExecutedNotebook)), key=lambda done: done.name)
