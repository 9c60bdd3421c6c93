"""Runs of hostile inputs, each with a time limit, and the table of what came of them.

`python -m support.hostile_runs --seed 1 --count 5000` prints it. A worker process runs the cases one after the
other; one that does not end in time is killed and counted as a hang.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import resource
import stat
import sys
import tempfile
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from support.hostile_inputs import DANGLING, FIFO, FOLDER, LOOP, MAKERS, ZERO, Case, Valid, make_case
from support.run_entries import ended, run_of, session, started
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.executor.remote import host_offers
from heshare.ops.jobs.entries import encode
from heshare.paper.notebooks import notebook_parameters
from heshare.shared import files
from heshare.shared.errors import HeShareError
from heshare.shared.inputs.bounds import MOST_ITERATIONS, MOST_S
from heshare.shared.journal import journal_line
from heshare.world.catalogue import gpu, memory_mib, models
from heshare.world.workload import Workload

LIMIT_S = 60.0
"""Time that a case may take, s; the machine may be loaded."""
MOST_MEMORY = 4 << 30
"""Address space that a case may add to what the worker has, bytes."""
OUTCOMES = ("refused", "accepted", "traceback", "hang", "accepted wrongly")
_CLI = CliRunner()
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Outcome:
    """What came of a case: its kind, one of `OUTCOMES`, the message or the fault, and what was run."""

    kind: str
    outcome: str
    detail: str
    words: str


def prepare() -> Valid:
    """Return valid files, made by the commands that make them."""
    with tempfile.TemporaryDirectory() as name, _inside(Path(name)) as folder:
        lines = files.data("profiles", "emulated", "T4", "profile.csv").read_bytes().splitlines(keepends=True)
        profile = b"".join(lines[:25])
        content = json.loads(files.data("profiles", "emulated", "T4", "manifest.json").read_text("utf-8"))
        content |= {"sha256": hashlib.sha256(profile).hexdigest(), "rows": 24}
        _invoke(["plan", "--tasks", "3", "--cluster", "1xT4,1xA100", "--out", "plan", "-q"])
        Path("grid.yaml").write_text("policies: [random]\nclusters: [1xA100]\ntasks: [2]\nloads: [low]\nseeds: 1\n")
        _invoke(["compare", "-q", "--grid", "grid.yaml", "--cells", "cells", "--json"])
        cell = next(iter(folder.glob("cells/??/*.json")))
        return Valid(
            profile,
            json.dumps(content, indent=1).encode(),
            Path("plan/plan-trade-off.json").read_bytes(),
            b"".join(map(journal_line, _journal())),
            cell.read_bytes(),
            cell.stem,
        )


def _journal() -> Iterator[dict[str, Any]]:
    entries = run_of(1, devices=("GPU-0",), file="/j"), session(0.0), started("a"), ended("a", exit_code=0)
    yield from map(encode, entries)


def _invoke(words: list[str]) -> str:
    done = _CLI.invoke(app, words)
    if done.exit_code:
        raise RuntimeError(f"{words}: {done.output}") from done.exception
    return done.stdout


class _inside:  # noqa: N801 (a context manager)
    """Makes a folder the present one, and the home of all state, for a `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Path:
        self.before = Path.cwd()
        os.chdir(self.folder)
        os.environ.update(XDG_STATE_HOME=str(self.folder / ".state"), HESHARE_LOCKS=str(self.folder / ".locks"))
        return self.folder

    def __exit__(self, *_: object) -> None:
        os.chdir(self.before)


def run_case(case: Case, seed: int) -> Outcome:
    """Run a case in a folder of its own, and return what came of it."""
    with tempfile.TemporaryDirectory() as name, _inside(Path(name)) as folder:
        _lay_out(case, folder, random.Random(seed))
        before = _listing(folder)
        words = [word.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for word in case.words]
        outcome, detail = _call(case.words[1:]) if case.words[0] == "call" else _command(case)
        changed = sorted(path for path, seen in _listing(folder).items() if before.get(path, seen) != seen)
        made = sorted(set(_listing(folder)) - set(before)) if outcome == "refused" else []
        if outcome in ("refused", "accepted") and (wrong := _unwanted(case, changed, made)):
            outcome, detail = "accepted wrongly", wrong
    return Outcome(case.kind, outcome, detail[:400], " ".join(words)[:300])


def _lay_out(case: Case, folder: Path, rng: random.Random) -> None:
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if isinstance(content, bytes):
            path.write_bytes(_checksummed(content, rng) if case.kind == "journals" else content)
        elif content == FIFO:
            os.mkfifo(path)
        elif content == FOLDER:
            path.mkdir()
        else:
            path.symlink_to({LOOP: path, DANGLING: folder / "nothing", ZERO: Path("/dev/zero")}[content])


def _checksummed(content: bytes, rng: random.Random) -> bytes:
    """Return a damaged journal whose lines have the checksums of what they are now, most of the time."""
    if rng.random() < 0.3:
        return content
    texts = [line.rpartition(b"\t")[0] or line for line in content.split(b"\n") if line]
    return b"".join(text + b"\t%08x\n" % zlib.crc32(text) for text in texts)


def _listing(folder: Path) -> dict[str, object]:
    """Return the content of every file below a folder that is no state of the package's, by name."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not name.startswith("."):
            status = path.lstat()
            kind = stat.S_IFMT(status.st_mode)
            found[name] = (kind, hashlib.sha256(path.read_bytes()).digest() if stat.S_ISREG(kind) else b"")
    return found


def _unwanted(case: Case, changed: list[str], made: list[str]) -> str:
    """Return what was changed or left behind that should not be; outputs may be changed where a file is one."""
    outputs = {"c", "f", "gone", "loop", "pipe"} | {name for name in case.files if name.startswith(("cells", "r/"))}
    if "--out" in case.words:
        outputs.add("tasks.csv")  # its name among the outputs: --out may be this folder
    if case.kind == "manifests" and "--accept" in case.words:
        outputs.add("p/manifest.json")
    if wrong := [name for name in changed if name not in outputs and case.kind != "command lines"]:
        return f"changed {', '.join(wrong)}"
    left = [name for name in made if not name.startswith(("cells", "r"))]
    return f"refused, but left {', '.join(left)}" if left else ""


def _command(case: Case) -> tuple[str, str]:
    done = _CLI.invoke(app, case.words)
    message = done.stderr.strip()
    error = done.exception
    if error is not None and not isinstance(error, SystemExit):
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    if done.exit_code == 2:
        if "--json" in case.words and not message.startswith("Usage"):
            told = [str(json.loads(done.stdout)["error"]["message"])]
            message = told[0]
        else:
            told = [line for line in message.splitlines() if line.startswith(("heshare: ", "Error", "Usage"))]
        return ("refused", message) if told or "--check" in case.words else ("traceback", f"no message: {message}")
    if done.exit_code:
        return "traceback", f"exit code {done.exit_code}: {message}"
    try:
        wrong = _check_result(done.stdout) if "--json" in case.words and "--help" not in case.words else ""
    except (ValueError, KeyError, TypeError) as bad:
        wrong = f"no result ({type(bad).__name__}: {bad})"
    return ("accepted wrongly", wrong) if wrong else ("accepted", done.stdout[:100])


def _check_result(text: str) -> str:
    """Return what is wrong with a result: numbers that are not finite, tasks that fit no card or are out of bounds."""
    result = json.loads(text, parse_constant=lambda name: "not finite")
    rows = result.get("rows", []) if isinstance(result, dict) else []
    for row in (result, *rows) if rows else ():
        for name in ("avg_jct_s", "makespan_s", "energy_active_j", "jct_s", "execution_s"):
            if name in row and not (isinstance(row[name], int | float) and 0 < row[name] < 1e30):
                return f"{name} is {row[name]}"
        if "iterations" in row:
            largest = max(gpu(name).memory_mib for name in ("T4", "V100", "A100"))
            if not (0 < row["iterations"] <= MOST_ITERATIONS and 0 <= row["arrival_s"] <= MOST_S):
                return f"a task out of bounds: {row}"
            if row["workload"] in models() and memory_mib(Workload(row["workload"], row["batch_size"])) > largest:
                return f"a task that fits no card: {row}"
    for task in result.get("tasks", []) if isinstance(result, dict) and isinstance(result.get("tasks"), list) else []:
        if not (isinstance(task["time_s"], float) and 0 < task["time_s"] < 1e6):
            return f"an estimate of {task['time_s']} s"
    return ""


def _call(words: list[str]) -> tuple[str, str]:
    book = notebook_parameters.Notebook(
        Path("n.ipynb"), {"seed": 0, "tasks": 60, "profile": "paper", "sizes": [1, 2], "rate": 0.5, "on": True}, ()
    )
    calls: dict[str, Callable[..., object]] = {
        "find_notebook": lambda name: notebook_parameters.find([name]),
        "read_notebook": notebook_parameters.read,
        "check_parameter": lambda name, value: notebook_parameters.check(book, {name: value}),
        "check_hosts": lambda text: host_offers.check_address(text, "--hosts"),
    }
    try:
        return "accepted", repr(calls[words[0]](*words[1:]))
    except HeShareError as error:
        return "refused", str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"


def _work(connection: Connection, seed: int, valid: Valid) -> None:
    """Run the cases whose numbers come in, until there are no more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, resource.RLIM_INFINITY))
    while (index := connection.recv()) is not None:
        connection.send(run_case(make_case(seed, index, valid), index))
    os._exit(0)


def run_cases(seed: int, count: int, *, first: int = 0, show: bool = False) -> list[Outcome]:
    """Return the outcomes of `count` cases of a seed."""
    valid, outcomes = prepare(), []
    connection = process = None
    for index in range(first, first + count):
        if process is None:
            connection, other = _FORK.Pipe()
            process = _FORK.Process(target=_work, args=(other, seed, valid))
            process.start()
            other.close()
        assert connection is not None
        try:
            connection.send(index)
            if connection.poll(LIMIT_S):
                outcome = connection.recv()
            else:
                outcome = _lost(seed, index, valid, "hang", f"not ended after {LIMIT_S:g} s")
                process.kill()
        except (EOFError, ConnectionError):
            outcome = _lost(seed, index, valid, "traceback", "the process ended")
        if outcome.detail in ("the process ended", f"not ended after {LIMIT_S:g} s"):
            process.join()
            process = None
        outcomes.append(outcome)
        if show and outcome.outcome not in ("refused", "accepted"):
            sys.stderr.write(f"{index} {json.dumps(asdict(outcome))}\n")
    if process is not None and connection is not None:
        connection.send(None)
        process.join()
    return outcomes


def _lost(seed: int, index: int, valid: Valid, outcome: str, detail: str) -> Outcome:
    case = make_case(seed, index, valid)
    return Outcome(case.kind, outcome, detail, ascii(" ".join(case.words))[:300])


def table(outcomes: list[Outcome]) -> str:
    """Return the numbers by kind as a Markdown table."""
    counts = Counter((each.kind, each.outcome) for each in outcomes)
    kinds = list(dict.fromkeys(each.kind for each in outcomes))
    lines = [f"| | inputs | {' | '.join(OUTCOMES)} |", "|---" * (len(OUTCOMES) + 2) + "|"]
    for name, chosen in (*((kind, [kind]) for kind in kinds), ("**total**", kinds)):
        cells = [sum(counts[kind, outcome] for kind in chosen) for outcome in OUTCOMES]
        lines.append(f"| {name} | {sum(cells)} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    """Run the cases and print the table; return 1 if one of them was neither refused nor rightly accepted."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("seed", 1), ("count", 13 * len(MAKERS)), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    outcomes = run_cases(given.seed, given.count, first=given.first, show=True)
    sys.stdout.write(f"seed {given.seed}\n\n{table(outcomes)}\n")
    return int(any(each.outcome not in ("refused", "accepted") for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
