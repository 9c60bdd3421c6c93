"""Results of commands: the folder of `--out`, with `run.json`, for `run`, `plan`, `compare` and `estimate --grid`."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any

import typer

from heshare.cli.options import given
from heshare.paper.provenance.results_folder import NAME, ResultsFolder
from heshare.world.arrivals import split_load

_NOT_OF_RESULTS = {"context", "out", "quiet", "json", "jobs", "cells"}
"""Parameters on which results do not depend."""


def results_folder(
    context: typer.Context,
    out: Path | None,
    names: Collection[str],
    *,
    inputs: Iterable[Path] = (),
    objects: Iterable[object] = (),
    parameters: Mapping[str, Any] | None = None,
    record: str = NAME,
) -> ResultsFolder | None:
    """Return the folder of `--out` for this command, checked before the work; None without the option.

    Args:
        context: of the command; the files that its parameters name are inputs.
        out: the folder.
        names: of the files that the command will write.
        inputs: more files that it reads.
        objects: policies, for example; source files of those outside the package are inputs.
        parameters: of the results; those of the command unless given.
        record: the name of `run.json`.

    Raises:
        InputError: the folder has other results (`ResultsFolder.of_command`).
    """
    if out is None:
        return None
    named = {name: value for name, value in context.params.items() if name not in _NOT_OF_RESULTS}
    read = {*_files_of(named.values()), *inputs, *_sources_of(objects)}
    command = shlex.join(["heshare", str(context.info_name), *_words(context)])
    chosen = named if parameters is None else parameters
    return ResultsFolder.of_command(out, command, names, inputs=sorted(read), parameters=chosen, record=record)


def _words(context: typer.Context) -> Iterator[str]:
    # The options and arguments that were given, on which results depend, in the order of the command's help.
    named = given(context) - _NOT_OF_RESULTS
    for parameter in context.command.params:
        if parameter.name not in named:
            continue
        value = context.params[parameter.name]
        values = value if isinstance(value, list | tuple) else [value]
        if parameter.param_type_name == "argument":
            yield from map(str, values)
        elif isinstance(value, bool):
            yield (parameter.opts if value or not parameter.secondary_opts else parameter.secondary_opts)[0]
        else:
            for each in values:
                yield from (parameter.opts[0], str(each))


def _files_of(values: Iterable[Any]) -> Iterator[Path]:
    for value in values:
        with suppress(OSError, ValueError):  # no name of a file
            # Arrivals of a file may have a load, such as arrivals.csv@0.8.
            path = Path(str(split_load(value)[0])) if isinstance(value, str) else value
            if isinstance(path, Path) and path.exists():
                yield path


def _sources_of(objects: Iterable[object]) -> Iterator[Path]:
    for each in objects:
        functions = [value for value in vars(each).values() if inspect.isfunction(value)]
        codes: list[type | FunctionType] = [*type(each).__mro__[:-1], *functions]
        for code in codes:
            own = code.__module__.partition(".")[0] not in ("heshare", *sys.stdlib_module_names)
            with suppress(TypeError, OSError):  # no source file
                path = Path(inspect.getsourcefile(code) or "") if own else Path()
                if path.is_file():
                    yield path
