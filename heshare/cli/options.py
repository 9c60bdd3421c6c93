"""Options shared by several commands, shell completion, parsing of option values, and output as a table or as JSON."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, TextIO

import pandas as pd
import typer

from heshare import arguments
from heshare.cli.json_output import print_json
from heshare.lab.sweeps.random_streams import Repetition
from heshare.paper.notebooks import parameters
from heshare.paper.tables import cell, to_text
from heshare.policies.registry import policies
from heshare.prediction import load
from heshare.prediction.predictor import Predictor
from heshare.profiles import store
from heshare.shared import files
from heshare.shared.errors import require
from heshare.shared.inputs.bounds import MOST_TASKS, parse_whole
from heshare.shared.interruption import InterruptedWarning
from heshare.shared.progress import line_after_a_second
from heshare.world import task_file
from heshare.world.catalogue import gpus, models
from heshare.world.cluster import Cluster
from heshare.world.task import TaskSet

ARRIVALS_HELP = "at_once, exponential, miso, front_loaded, or a CSV file; @LOAD adds a load, as in exponential@0.8."
PRECISION_HELP = (
    "mixed (PyTorch's default: convolutions in TF32, matrix products in FP32), tf32 (both in TF32), fp32 or fp16. "
    "GPUs before Ampere have no TF32 and compute in FP32."
)
PAPER_CLUSTER = "4xT4,2xV100,2xA100"
LONGEST_BUDGET_S = 30 * 86_400.0
"""Longest time budget of a recording or a search, s: a month."""


# Shell completion of the last argument: `heshare --install-completion`.


def policy_names(incomplete: str) -> list[str]:
    return _beginning(policies(variants=True), incomplete)


def gpu_names(incomplete: str) -> list[str]:
    return _beginning(gpus(), incomplete)


def clusters(incomplete: str) -> list[str]:
    """Return completions of a cluster: its last part, such as `V` in `4xT4,2xV`, is completed to a GPU's name."""
    before, comma, last = incomplete.rpartition(",")
    count, _, name = last.rpartition("x") if "x" in last else ("1", "", last)
    return [f"{before}{comma}{count}x{gpu}" for gpu in gpu_names(name)]


def model_names(incomplete: str) -> list[str]:
    return _beginning(models(), incomplete)


def notebook_names(incomplete: str) -> list[str]:
    return _beginning((path.stem for path in parameters.find()), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.lower().startswith(incomplete.lower())]


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ClusterText = Annotated[
    str, typer.Option("--cluster", help="GPUs, such as 4xT4,2xV100,2xA100.", autocompletion=clusters)
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="A policy, such as random; compare takes several (the systems and baselines unless given), run one "
        "(heshare:trade-off).",
        autocompletion=policy_names,
    ),
]
TasksText = Annotated[
    str,
    typer.Option(
        "--tasks",
        help="Number of tasks to draw, or a CSV file of tasks; run also: a file of jobs (YAML), venus:N, venus:all.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all random numbers.")]
RepetitionNumber = Annotated[
    int, typer.Option("--repetition", min=0, help="Number of the repetition of a comparison with the same seed.")
]
Load = Annotated[str, typer.Option("--load", help="Class of the drawn models: low, medium, high or mixed.")]
Arrivals = Annotated[str, typer.Option("--arrivals", help=ARRIVALS_HELP)]
Trace = Annotated[Path | None, typer.Option("--trace", help="A Helios trace (CSV) to take the durations from.")]
Profiles = Annotated[Path | None, typer.Option("--profiles", help="Profile (CSV or folder) to train the predictor on.")]
PowerLimit = Annotated[
    str | None,
    typer.Option(
        "--power-limit",
        help="Limit on the sum of the GPUs' power at all times: watts, or a CSV file with time_s, limit_w.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def writable_folder(context: typer.Context, parameter: typer.CallbackParam, folder: Path | None) -> Path | None:
    """Callback of options for output folders: raise `InputError` before the work if the folder is not writable."""
    if folder is not None and not context.resilient_parsing:
        files.require_writable(folder, parameter.opts[0])
    return folder


Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.", callback=writable_folder)]


def is_count(text: str) -> bool:
    """Return whether `--tasks` is a number, which may be out of range."""
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None


def check_trace(trace: object, counts: bool) -> None:
    action = "Give --tasks a number to draw tasks from the trace."
    require("--trace", "a trace and a file of tasks", trace is None or counts, "one of the two", action)


def task_set(
    text: str,
    streams: Repetition,
    *,
    cluster: Cluster | None = None,
    load: str = "mixed",
    arrivals: str = "at_once",
    trace: Path | None = None,
) -> TaskSet:
    """Return the tasks of the file `text`, or draw as many tasks as the number `text`.

    `cluster` is for arrivals with a load, such as `exponential@0.8`; the other options are those of a drawn task set,
    and an error with a file.
    """
    check_trace(trace, is_count(text))
    if is_count(text):
        n = parse_whole(text, "n", least=1, most=MOST_TASKS)
        drawn = arguments.draw_options(n, load=load, arrivals=arrivals, trace=trace)
        return TaskSet(streams.task_set(n, cluster=cluster, **drawn))
    arguments.draw_options(text, load=load, arrivals=arrivals, trace=trace)  # raises if one of them is given
    return read_tasks(text)


def read_tasks(text: str) -> TaskSet:
    """Return the tasks of a file that `--tasks` names."""
    action = "Correct the path; `--tasks` takes a number without quotes."
    expected = "a number of tasks to draw, or the path of a CSV file"
    require("tasks", f"{text!r}, which is no file", Path(text).is_file(), expected, action)
    return TaskSet(task_file.read_tasks(text))


def predictor_factory(profiles: Path | None) -> Callable[[], Predictor]:
    """Return a factory of predictors, from the shipped profiles or from given ones, which are read and checked now."""
    return load.load_predictor if profiles is None else load.predictor_factory(store.read(profiles))


def one_policy(policies: list[str] | None) -> str:
    named = policies or ["heshare:trade-off"]
    action = "Compare several with `heshare compare`, where --policy may be repeated."
    require("--policy", " and ".join(named), len(named) == 1, "one policy", action)
    return named[0]


def shows_bar(quiet: bool) -> bool:
    """Return whether to show a progress bar: on a terminal, unless `quiet`."""
    return not quiet and sys.stderr.isatty()


def given(context: typer.Context) -> set[str]:
    """Return the names of the options that were given on the command line."""
    return {name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"}


@contextmanager
def interruption() -> Iterator[list[str]]:
    """Yield a list that collects the texts of `InterruptedWarning`s in this block, which are not shown."""
    texts: list[str] = []
    show = warnings.showwarning

    def collect(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, InterruptedWarning):
            texts.append(str(message))
        else:
            show(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.simplefilter("always", InterruptedWarning)
        warnings.showwarning = collect
        yield texts


@contextmanager
def working_line(name: str, quiet: bool) -> Iterator[None]:
    """Print a line about a command that takes longer than a second, if stderr is no terminal and shows no bar."""
    with line_after_a_second(f"heshare {name}: working", not quiet and not sys.stderr.isatty()):
        yield


def only_json(json: bool) -> AbstractContextManager[object]:
    """Send what a user's own code prints in this block to standard error, so that JSON stands alone on the other."""
    return redirect_stdout(sys.stderr) if json else nullcontext()


def parse_duration_s(text: str, option: str = "budget") -> float:
    """Return a duration such as `900`, `900s`, `15m` or `1.5h` in seconds; `option` is named in an error."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)?", text.strip())
    duration_s = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"] if match else 0.0
    expected = f"a time such as 90s, 15m or 2h, at most {LONGEST_BUDGET_S / 3600:g}h"
    require(option, repr(text[:60]), 0 < duration_s <= LONGEST_BUDGET_S, expected, "Give a time.")
    return duration_s


def to_records(frame: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the rows of a frame as dicts, with None for missing values."""
    return frame.astype(object).where(frame.notna(), None).to_dict(orient="records")


def print_frame(frame: pd.DataFrame, as_json: bool, more: Mapping[str, object] | None = None) -> None:
    """Print a frame as a table with the values of `more` below it, or as a JSON document of `more` and `rows`."""
    values = more or {}
    if as_json:
        print_json({**values, "rows": to_records(frame)})
        return

    typer.echo(to_text(frame))
    print_values(values)


def print_values(values: Mapping[str, object]) -> None:
    """Print one value a line, with its name."""
    for name, value in values.items():
        typer.echo(f"{name}: {cell(value)}")
