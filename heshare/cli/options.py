"""Options that several commands share, the completion of names, what options name, and output as a table or as JSON."""

from __future__ import annotations

import json
import math
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heshare.shared import files
from heshare.shared.errors import HeShareError, require
from heshare.shared.inputs.bounds import MOST_TASKS, parse_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

    from heshare.lab.sweeps.random_streams import Repetition
    from heshare.prediction.predictor import Predictor
    from heshare.world.cluster import Cluster
    from heshare.world.task import Task

ARRIVALS_HELP = "at_once, exponential, miso, front_loaded, or a CSV file; @LOAD adds a load, as in exponential@0.8."
INTERVAL_HELP = "Mean time between two arrivals that are drawn, s (60)."
PAPER_CLUSTER = "4xT4,2xV100,2xA100"
LONGEST_BUDGET_S = 30 * 86_400.0
"""The longest time for a recording or a search, s: a month. A plan is made of all that fits into it."""


# What a shell offers for the last word: `heshare --install-completion`.


def policy_names(incomplete: str) -> list[str]:
    from heshare.policies.registry import policies

    return _beginning(policies(variants=True), incomplete)


def gpu_names(incomplete: str) -> list[str]:
    from heshare.world.catalogue import gpus

    return _beginning(gpus(), incomplete)


def clusters(incomplete: str) -> list[str]:
    """Return the clusters that begin so: the last of them, such as `V` in `4xT4,2xV`, becomes a GPU's name."""
    before, comma, last = incomplete.rpartition(",")
    count, _, name = last.rpartition("x") if "x" in last else ("1", "", last)
    return [f"{before}{comma}{count}x{gpu}" for gpu in gpu_names(name)]


def model_names(incomplete: str) -> list[str]:
    from heshare.world.catalogue import models

    return _beginning(models(), incomplete)


def notebook_names(incomplete: str) -> list[str]:
    from heshare.paper.notebooks import parameters

    try:
        return _beginning((path.stem for path in parameters.find()), incomplete)
    except HeShareError:
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.lower().startswith(incomplete.lower())]


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ClusterText = Annotated[
    str, typer.Option("--cluster", help="GPUs, such as 4xT4,2xV100,2xA100.", autocompletion=clusters)
]
OnePolicy = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", help="The policy, such as random; heshare:trade-off unless given.", autocompletion=policy_names
    ),
]
TasksText = Annotated[
    str,
    typer.Option(
        "--tasks",
        help="How many tasks to draw, a CSV file of tasks; run also: a file of jobs (YAML), venus:N, venus:all.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
RepetitionNumber = Annotated[
    int, typer.Option("--repetition", min=0, help="Which repetition of a comparison with the same seed.")
]
Load = Annotated[str, typer.Option("--load", help="Which models are drawn: low, medium, high or mixed.")]
Arrivals = Annotated[str, typer.Option("--arrivals", help=ARRIVALS_HELP)]
Interval = Annotated[float | None, typer.Option("--interval", help=INTERVAL_HELP)]
Trace = Annotated[Path | None, typer.Option("--trace", help="A Helios trace (CSV) to take the durations from.")]
Profiles = Annotated[Path | None, typer.Option("--profiles", help="Profile (CSV or folder) to train the predictor on.")]
PowerLimit = Annotated[
    str | None,
    typer.Option(
        "--power-limit",
        help="Limit on the sum of the GPUs' power at every moment: watts, or a CSV file with time_s, limit_w.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def writable_folder(context: typer.Context, parameter: typer.CallbackParam, folder: Path | None) -> Path | None:
    """Refuse a folder that cannot be written to, before the work; the callback of every option of outputs."""
    if folder is not None and not context.resilient_parsing:
        files.require_writable(folder, parameter.opts[0])
    return folder


def writable_file(context: typer.Context, parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuse a file that cannot be written, before the work."""
    if path is not None and not context.resilient_parsing:
        is_folder = "a folder, where a file is to be written"
        require(parameter.opts[0], is_folder, not path.is_dir(), "the path of a file", "Name the file.")
        if not files.is_stream(path):
            files.require_writable(path.absolute().parent, parameter.opts[0])
    return path


Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.", callback=writable_folder)]


def is_count(text: str) -> bool:
    """Return whether `--tasks` is a number of tasks, which may be out of range."""
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None


def check_trace(trace: Path | None, counts: bool) -> None:
    action = "Give --tasks a number to draw tasks from the trace."
    require("--trace", "a trace and a file of tasks", trace is None or counts, "one of the two", action)


def task_set(
    text: str, streams: Repetition, *, cluster: Cluster | None = None, at_once: bool = False, **how: Any
) -> Sequence[Task]:
    """Return the tasks of a file, or draw the given number of tasks; `at_once` refuses tasks that arrive later.

    `how` has what `arguments.as_drawn` takes.
    """
    from heshare import arguments

    check_trace(how.get("trace"), is_count(text))
    source = parse_whole(text, "n", least=1, most=MOST_TASKS) if is_count(text) else Path(text)
    drawn = arguments.as_drawn(source, **how)
    return arguments.as_tasks(source, streams, at_once=at_once, cluster=cluster, **drawn)


def predictor_factory(profiles: Path | None) -> Callable[[], Predictor]:
    """Return what makes predictors: of the shipped profiles, or of the given ones, which are read and checked now."""
    from heshare.prediction import load
    from heshare.profiles import store

    return load.load_predictor if profiles is None else load.predictor_factory(store.read(profiles))


def one_policy(policies: list[str] | None) -> str:
    named = policies or ["heshare:trade-off"]
    action = "Compare several with `heshare compare`, where --policy may be repeated."
    require("--policy", " and ".join(named), len(named) == 1, "one policy", action)
    return named[0]


def shows_bar(quiet: bool) -> bool:
    """Return whether progress is shown as a bar: on a terminal, unless it is not wanted."""
    return not quiet and sys.stderr.isatty()


@contextmanager
def told(name: str, quiet: bool) -> Iterator[None]:
    """Print a line about a command that takes longer than a second, where no bar is shown."""
    from heshare.shared.progress import line_after_a_second

    with line_after_a_second(f"heshare {name}: working", not quiet and not sys.stderr.isatty()):
        yield


def parse_duration_s(text: str) -> float:
    """Return a duration such as `900`, `900s`, `15m` or `1.5h` in seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)?", text.strip())
    duration_s = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"] if match else 0.0
    expected = f"a time such as 90s, 15m or 2h, at most {LONGEST_BUDGET_S / 3600:g}h"
    require("budget", repr(text[:60]), 0 < duration_s <= LONGEST_BUDGET_S, expected, "Give a time.")
    return duration_s


def to_plain(value: Any) -> Any:
    """Return `value` as JSON values: NumPy numbers become Python's, numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_records(frame: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the rows of a frame as dicts, with None for missing values."""
    return frame.astype(object).where(frame.notna(), None).to_dict(orient="records")


def json_text(value: Any) -> str:
    text = json.dumps(to_plain(value), indent=2, ensure_ascii=False)
    # A byte of a command line that is no text has no UTF-8; its escape is JSON.
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


def print_json(value: Any) -> None:
    typer.echo(json_text(value), nl=False)


def print_frame(frame: pd.DataFrame, as_json: bool, **more: Any) -> None:
    """Print a frame as a table with `more` below it, or all of it as one JSON document with the rows under `rows`."""
    if as_json:
        print_json({**more, "rows": to_records(frame)})
        return
    from heshare.paper.tables import to_text

    typer.echo(to_text(frame))
    print_values(more)


def print_values(values: dict[str, Any]) -> None:
    from heshare.paper.tables import cell

    for name, value in values.items():
        typer.echo(f"{name}: {cell(value)}")
