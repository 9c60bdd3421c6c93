"""Run many notebooks, a few at a time, with a progress bar."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tqdm.auto import tqdm

from heshare import files
from heshare.errors import HeShareError, InputError
from heshare.profiles import recordings
from heshare.reporting import parameters as params
from heshare.reporting.execute import Done, NotebookError, execute
from heshare.reporting.parameters import Notebook


@cache
def _profiles() -> dict[str, dict[str, Any]]:
    loaded = yaml.safe_load((params.folder() / "profiles.yaml").read_text(encoding="utf-8"))
    return {str(name): value or {} for name, value in loaded.items()}


def folder_for(profile: str) -> Path:
    """Where a profile's outputs go unless told otherwise: `figures/` for the paper's, `build/<profile>/` else.

    Raises:
        InputError: no such profile.
    """
    if profile not in params.PROFILES:
        raise InputError(
            column="profile",
            found=repr(profile),
            expected=", ".join(params.PROFILES),
            action=params.nearest(profile, params.PROFILES),
        )
    return files.root() / ("figures" if profile == "paper" else f"build/{profile}")


def prepare(
    paths: Sequence[Path], profile: str, given: Mapping[str, object]
) -> list[tuple[Notebook, dict[str, object]]]:
    """Each notebook with the parameters of this run: its defaults, then the profile's, then those given.

    Raises:
        InputError: a given parameter is unknown to a chosen notebook or mistyped, or names a recorded GPU that is not
            there; nothing has run yet.
    """
    folder_for(profile)
    runs = []
    for path in paths:
        notebook = params.read(path)
        sizes = _profiles().get(profile, {}).get(notebook.name, {})
        for name in params.RESERVED:
            if name in given:
                raise InputError(
                    column=name, found=f"-p {name}=...", expected=f"--{name.split('_')[0]}", action="Use that option."
                )
        values = {**params.check(notebook, sizes), **params.check(notebook, given), "profile": profile}
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
) -> list[Done]:
    """Run notebooks in parallel processes.

    Args:
        paths: which notebooks.
        profile: `smoke`, `paper` or `live`.
        given: parameters that replace the notebooks' own.
        out: the folder for figures, tables and claims.
        jobs: how many at a time.
        quiet: no progress bar.

    Raises:
        InputError: a parameter is unknown or mistyped; nothing has run.
        NotebookError: one or more notebooks failed; the others' outputs are in place.
    """
    runs = prepare(paths, profile, given)
    copies = files.root() / "build" / "notebooks" / profile
    if jobs == 1 or len(runs) == 1:
        bar = tqdm(runs, disable=True if quiet else None, unit="notebook")
        return _gather([(notebook.name, _now(notebook, values, out, copies)) for notebook, values in bar])
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(runs)), mp_context=context, initializer=_ignore_interrupt) as pool:
        pending = {pool.submit(execute, nb, values, out, copies): nb.name for nb, values in _longest_first(runs)}
        try:
            return _gather(_follow(pending, quiet))
        except KeyboardInterrupt:
            _stop(pool)
            for notebook, _ in runs:
                for left in out.glob(f".{notebook.name}-*"):
                    shutil.rmtree(left, ignore_errors=True)
            raise


def _longest_first(runs: Sequence[tuple[Notebook, dict[str, object]]]) -> list[tuple[Notebook, dict[str, object]]]:
    """The longest ones in the order of `profiles.yaml`, then the others as they come: the last one ends soon."""
    order = {name: at for at, name in enumerate(_profiles()["order"]["longest"])}
    return sorted(runs, key=lambda run: order.get(run[0].name, len(order)))


def _stop(pool: ProcessPoolExecutor) -> None:
    workers = list(pool._processes.values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(timeout=10)


def _ignore_interrupt() -> None:
    # Ctrl-C reaches the whole group; the parent decides, and a terminated worker shuts its kernel down.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _now(notebook: Notebook, values: Mapping[str, object], out: Path, copies: Path) -> Done | HeShareError:
    try:
        return execute(notebook, values, out, copies)
    except HeShareError as error:
        return error


def _follow(pending: Mapping[Future[Done], str], quiet: bool) -> list[tuple[str, Done | HeShareError]]:
    results: list[tuple[str, Done | HeShareError]] = []
    with tqdm(total=len(pending), disable=True if quiet else None, unit="notebook") as bar:
        for future in as_completed(pending):
            error = future.exception()
            if error is not None and not isinstance(error, HeShareError):
                error = NotebookError(f"{pending[future]}: {type(error).__name__}: {error}")
            results.append((pending[future], error if error is not None else future.result()))
            bar.set_postfix_str(pending[future])
            bar.update()
    return results


def _gather(results: Sequence[tuple[str, Done | HeShareError]]) -> list[Done]:
    failed = [str(result) for _, result in sorted(results, key=lambda pair: pair[0]) if isinstance(result, Exception)]
    if failed:
        raise NotebookError("\n".join(failed))
    return sorted((result for _, result in results if isinstance(result, Done)), key=lambda done: done.name)
