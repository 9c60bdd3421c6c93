"""Execution of many notebooks, a few at a time, with a line at the start and the end of each."""

import multiprocessing
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import cache
from pathlib import Path
from signal import SIGINT
from typing import Any

from heshare import files
from heshare.errors import HeShareError, InputError
from heshare.experiments.notebooks import notebook_parameters as params
from heshare.experiments.notebooks.execute_notebook import ExecutedNotebook, NotebookError, execute
from heshare.experiments.notebooks.notebook_parameters import Notebook
from heshare.experiments.notebooks.run_log import RunLog
from heshare.gpu.recording import recordings
from heshare.signals import ignore
from heshare.yaml_nodes import read_values

_Run = tuple[Notebook, dict[str, object]]
_Result = tuple[str, ExecutedNotebook | HeShareError]


@cache
def _profiles() -> dict[str, dict[str, Any]]:
    values = read_values(params.folder() / "profiles.yaml", "the notebooks' profiles", "Correct the file.")
    return {str(name): value or {} for name, value in values.items()}


def folder_for(profile: str) -> Path:
    """Return the default folder of a profile's outputs: `figures/` for the paper's, `build/<profile>/` for others.

    Raises:
        InputError: no such profile.
    """
    known = params.PROFILES
    if profile not in known:
        raise InputError(repr(profile), ", ".join(known), params.suggestion(profile, known), column="profile")
    return files.root() / ("figures" if profile == "paper" else f"build/{profile}")


def prepare(
    paths: Sequence[Path], profile: str, given: Mapping[str, object]
) -> list[tuple[Notebook, dict[str, object]]]:
    """Return each notebook with the parameters of this run: the profile's, replaced by those given.

    Raises:
        InputError: a given parameter is unknown to a chosen notebook or has another type, or names a recorded GPU that
            does not exist; nothing has run yet.
    """
    folder_for(profile)
    runs = []
    for path in paths:
        notebook = params.read(path)
        of_profile = _profiles().get(profile, {}).get(notebook.name, {})
        for name in params.RESERVED:
            if name in given:
                raise InputError(f"-p {name}=...", f"--{name.split('_')[0]}", "Use that option.", column=name)
        values = {**params.check(notebook, of_profile), **params.check(notebook, given), "profile": profile}
        recordings.read(str(values.get("source", recordings.EMULATED)))
        runs.append((notebook, values))
    return runs


def run(
    paths: Sequence[Path],
    *,
    profile: str,
    given: Mapping[str, object],
    out: Path,
    jobs: int = 2,
    quiet: bool = False,
) -> list[ExecutedNotebook]:
    """Run notebooks in parallel processes, `jobs` at a time; figures, tables and claims go into the folder `out`.

    The parameters `given` replace those of the profile (`smoke`, `paper` or `live`). With `quiet` nothing is printed.

    Raises:
        InputError: as `prepare`; nothing has run.
        NotebookError: one or more notebooks failed; the outputs of the others are in place.
    """
    runs = prepare(paths, profile, given)
    copies = files.root() / "build" / "notebooks" / profile
    log = RunLog([book.name for book, _ in runs], jobs, copies / "seconds.json", quiet=quiet)
    if jobs == 1 or len(runs) == 1:
        results = []
        for notebook, values in runs:
            log.start(notebook.name)
            results.append(_ended(log, notebook.name, _try(notebook, values, out, copies)))
        return _results(results)
    context = multiprocessing.get_context("spawn")
    # Ctrl-C reaches the whole process group. The workers ignore it: this process terminates them, and a terminated
    # worker shuts its kernel down.
    with ProcessPoolExecutor(
        min(jobs, len(runs)), mp_context=context, initializer=ignore, initargs=((SIGINT,),)
    ) as pool:
        try:
            return _results(_follow(pool, _longest_first(runs), jobs, (out, copies), log))
        except KeyboardInterrupt:
            _stop(pool)
            for notebook, _ in runs:
                for staging in out.glob(f".{notebook.name}-*"):
                    shutil.rmtree(staging, ignore_errors=True)
            raise


def _longest_first(runs: Sequence[_Run]) -> list[_Run]:
    """Return the notebooks with the longest first, in the order of `profiles.yaml`, so that a short one starts last."""
    order = {name: position for position, name in enumerate(_profiles()["order"]["longest"])}
    return sorted(runs, key=lambda run: order.get(run[0].name, len(order)))


def _stop(pool: ProcessPoolExecutor) -> None:
    workers = list(pool._processes.values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(timeout=10)


def _try(notebook: Notebook, values: Mapping[str, object], out: Path, copies: Path) -> ExecutedNotebook | HeShareError:
    try:
        return execute(notebook, values, out, copies)
    except HeShareError as error:
        return error


def _follow(
    pool: ProcessPoolExecutor, runs: Sequence[_Run], jobs: int, folders: tuple[Path, Path], log: RunLog
) -> list[_Result]:
    """Run notebooks in the pool, the next one whenever one ends, so that the log has the time at which each starts."""
    waiting, results = list(runs), []
    pending: dict[Future[ExecutedNotebook], str] = {}
    while waiting or pending:
        while waiting and len(pending) < jobs:
            notebook, values = waiting.pop(0)
            log.start(notebook.name)
            pending[pool.submit(execute, notebook, values, *folders)] = notebook.name
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
