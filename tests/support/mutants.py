"""Mutants: single changes of operators and constants, drawn at random, each tried against the nearest tests.

    make mutants MUTANTS="--seed 1 --count 200"

A change that no test notices is a survivor: a behaviour that no test states, or an equivalent program. Those of seed 1
that were looked at are in survivors.csv. Each mutant is written into a copy of the tree, never into the tree itself,
and meets the tests that call the changed function. Results are kept after every mutant, so that a run that was stopped
goes on.
"""

from __future__ import annotations

import argparse
import ast
import copy
import csv
import importlib
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
_IN_MEMORY = (*("simulated_runs", "fault_tolerant", "executor_device", "operator_log", "job_tasks", "run_observer"),)
"""Tests of the executor that start no run of processes: those take seconds each."""
ROOMS = {
    "heshare/running": ["tests/unit/running", "tests/property/test_running.py", "tests/property/test_gangs.py"],
    "heshare/scheduling": ["tests/unit/scheduling", "tests/property/test_plans.py", "tests/golden/test_front.py"],
    "heshare/lab/limits.py": ["tests/unit/lab/test_limits.py", "tests/property/test_limits.py"],
    "heshare/ops/executor": [
        *[f"tests/unit/ops/executor/test_{name}.py" for name in _IN_MEMORY],
        "tests/unit/ops/jobs",
    ],
}
"""By room, a folder or a file: its nearest tests; those of a file of the same name run first."""
SURVIVORS = CHECKOUT / "tests" / "support" / "survivors.csv"
"""Survivors that were looked at, each with the reason why no test is to notice it."""
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}
_PRELOADED = ("hypothesis.strategies", "moocore", "msgspec", "numba", "pandas", "scipy.optimize", "scipy.stats")
_LONG_S = 1.0
"""Tests that take longer are left out: a behaviour has a quick test, too."""
_LEAST_S, _LEAST_CPU_S, _FACTOR = 120.0, 20.0, 2.0
"""A mutant that takes so long, and so many times as long as the unchanged tests, hangs."""


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the function, what is changed into what, how many alike come before; and its text."""

    path: str
    line: int
    function: str
    change: str
    number: int
    text: str

    @property
    def room(self) -> str:
        return next(room for room in ROOMS if self.path == room or self.path.startswith(f"{room}/"))

    @property
    def key(self) -> str:
        """Name the mutant, in the same way whatever is changed in other functions."""
        return f"{self.path} {self.function}: {self.change}" + f" ({self.number})" * (self.number > 1)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a Python file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    alike: Counter[tuple[str, str]] = Counter()
    for function, node in _nodes(ast.parse(source), ""):
        for changed in _changes(node):
            text = _replaced(lines, node, ast.unparse(changed))
            change = f"{ast.unparse(node)} -> {ast.unparse(changed)}".replace("\n", " ")
            alike[function, change] += 1
            name = path.relative_to(CHECKOUT).as_posix()
            yield Mutant(name, node.lineno, function, change, alike[function, change], text)


def _nodes(tree: ast.AST, function: str) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    # Expressions that run: no annotations, no decorators, no texts, no messages of errors.
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            inner = isinstance(child, ast.FunctionDef | ast.ClassDef)
            within = f"{function}.{child.name}".lstrip(".") if inner else function
            if isinstance(child, ast.expr | ast.stmt):
                yield within, child
            if isinstance(child, ast.AST):
                yield from _nodes(child, within)


def _changes(node: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    new = copy.deepcopy(node)
    match new:
        case ast.BinOp(op=op) if type(op) in _SWAPS:
            new.op = _SWAPS[type(op)]()  # type: ignore[assignment]
        case ast.BoolOp(op=op):
            new.op = _SWAPS[type(op)]()  # type: ignore[assignment]
        case ast.Compare(ops=[op]) if type(op) in _SWAPS:
            new.ops = [_SWAPS[type(op)]()]  # type: ignore[list-item]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield new.operand
            return
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value) | float(value)):
            new.value = value + 1 if value in (0, 1) else value * 2
        case ast.Call(func=ast.Name(id=name)) if name in _NAMES:
            new.func = ast.Name(_NAMES[name], ast.Load())
        case ast.Call(func=ast.Attribute(attr=name)) if name in _NAMES:
            new.func.attr = _NAMES[name]  # type: ignore[attr-defined]
        case ast.Expr(value=ast.Call()):
            new = ast.Pass()  # type: ignore[assignment]
        case ast.IfExp():
            new.body, new.orelse = new.orelse, new.body
        case _:
            return
    yield new


def _replaced(lines: list[str], node: ast.expr | ast.stmt, text: str) -> str:
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    written = f"({text})" if isinstance(node, ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp | ast.IfExp) else text
    return "".join([*lines[:first], head, written, tail, *lines[last + 1 :]])


def draw(count: int, seed: int) -> list[Mutant]:
    """Return mutants of all rooms, drawn evenly; a change of the code leaves those of other functions drawn."""
    every: list[Mutant] = []
    for room in ROOMS:
        place = CHECKOUT / room
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            every += mutants_of(path)
    drawn = sorted(every, key=lambda mutant: random.Random(f"{seed} {mutant.key}").random())[:count]
    return sorted(drawn, key=lambda mutant: list(ROOMS).index(mutant.room))


class Copies:
    """Copies of the tree in which tests run, one for each job."""

    def __init__(self, folder: Path, n: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._limits_s: dict[str, float] = {}
        self._tests: dict[str, list[str]] = {}
        self._took_s: dict[str, dict[str, float]] = {}
        ignored = shutil.ignore_patterns(".git", ".venv", "build", ".hypothesis", ".pytest_cache", ".mypy_cache")
        for number in range(n):
            # With the times of the files, by which compiled functions are found again.
            self._free.put(Path(shutil.copytree(CHECKOUT, folder / str(number), ignore=ignored, symlinks=True)))

    def measure(self, rooms: set[str]) -> None:
        """Run the unchanged tests of each room, which have to pass, and note which functions each of them calls."""
        for room in sorted(rooms):
            began_s = time.monotonic()
            place = self._free.get()
            notes = place / "calls.json"
            if not _pass(_run_tests, (place, room, notes), None):
                raise SystemExit(f"The tests of {room} fail without a change.")
            calls, self._took_s[room] = json.loads(notes.read_text())
            self._tests |= calls
            self._free.put(place)
            took_s = time.monotonic() - began_s
            self._limits_s[room] = max(_LEAST_S, _FACTOR * took_s)
            print(f"{room}: {took_s:.0f} s unchanged", flush=True)  # noqa: T201

    def killed(self, mutant: Mutant) -> bool:
        """Return whether a test fails, or hangs, with the mutant."""
        place = self._free.get()
        path = place / mutant.path
        before, stat = path.read_bytes(), path.stat()
        try:
            path.write_text(mutant.text, encoding="utf-8")
            took_s, function = self._took_s[mutant.room], mutant.function.rpartition(".")[2]
            # A compiled function, or a statement outside of functions, has no calls: all tests are for it.
            calling = self._tests.get(f"{mutant.path} {function}", took_s)
            chosen = [test for test in calling if took_s[test] <= _LONG_S]
            most_s = _LEAST_CPU_S + _FACTOR * sum(took_s[test] for test in chosen)
            arguments = (place, mutant.room, None, path.stem, chosen, most_s)
            return bool(chosen) and not _pass(_run_tests, arguments, self._limits_s[mutant.room])
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            self._free.put(place)


def _pass(function: Callable[..., None], arguments: tuple[Any, ...], limit_s: float | None) -> bool:
    # A copy of this process, which has loaded what is the same for every mutant: that takes longer than many a test.
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join(limit_s)
    if process.exitcode is None:
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return process.exitcode == 0


def _run_tests(
    place: Path,
    room: str,
    notes: Path | None,
    stem: str = "",
    chosen: list[str] | None = None,
    most_s: float = math.inf,
) -> None:
    os.setsid()
    if most_s < math.inf:
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(most_s), resource.RLIM_INFINITY))
    os.chdir(place)
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(quiet, descriptor)
    own = {str(CHECKOUT), str(CHECKOUT / "tests"), ""}
    sys.path[:] = [str(place), *[path for path in sys.path if path not in own]]
    os.environ["PYTHONPATH"] = str(place)
    for name in [name for name in sys.modules if name.split(".")[0] in ("heshare", "support", "tests")]:
        del sys.modules[name]
    files = ROOMS[room] if chosen is None else list(dict.fromkeys(test.partition("::")[0] for test in chosen))
    first = sorted(str(path.relative_to(place)) for path in (place / "tests").rglob(f"test_{stem}.py"))
    # Each file once: pytest runs a file again that is named beside its folder.
    within = [place / name for name in files]
    names = [
        str(path.relative_to(place))
        for one in within
        for path in ([one] if one.is_file() else sorted(one.rglob("test_*.py")))
    ]
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not gpu and not slow and not nightly"]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    arguments += list(dict.fromkeys([name for name in first if chosen is None or name in names] + names))
    calls = _Calls(place / room, chosen)
    code = pytest.main(arguments, plugins=[calls])
    if notes is not None:
        notes.write_text(json.dumps((calls.tests, calls.took_s)))
    os._exit(code)


class _Calls:
    """Plugin of pytest: notes which tests call each function of a room, or runs the chosen tests alone."""

    def __init__(self, room: Path, chosen: list[str] | None) -> None:
        self.tests: dict[str, list[str]] = {}
        self.took_s: dict[str, float] = {}
        self._room, self._chosen = room, chosen

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._chosen is not None:
            items[:] = [item for item in items if item.nodeid in self._chosen]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        codes: dict[int, CodeType] = {}

        def note(frame: FrameType, event: str, _: Any) -> None:
            codes[id(frame.f_code)] = frame.f_code

        if self._chosen is None:
            threading.settrace(note)
            sys.settrace(note)
        began_s = time.process_time()
        yield
        self.took_s[item.nodeid] = time.process_time() - began_s
        threading.settrace(None)
        sys.settrace(None)
        for code in codes.values():
            if code.co_filename.startswith(str(self._room)):
                path = Path(code.co_filename).relative_to(Path.cwd())
                self.tests.setdefault(f"{path} {code.co_name}", []).append(item.nodeid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=CHECKOUT / "build" / "mutants.json")
    parser.add_argument("--room", default="", help="only this room, or part of its name")
    parser.add_argument("--again", action="store_true", help="try the survivors of an earlier run once more")
    given = parser.parse_args()
    for name in _PRELOADED:
        importlib.import_module(name)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, bool] = json.loads(given.out.read_text()) if given.out.exists() else {}
    drawn = [mutant for mutant in draw(given.count, given.seed) if given.room in mutant.room]
    open_ones = [mutant for mutant in drawn if mutant.key not in known or (given.again and not known[mutant.key])]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        copies = Copies(Path(folder), given.jobs)
        copies.measure({mutant.room for mutant in open_ones})
        for mutant, killed in zip(open_ones, pool.map(copies.killed, open_ones), strict=True):
            known[mutant.key] = killed
            given.out.write_text(json.dumps(known, indent=1) + "\n")
            print("killed  " if killed else "SURVIVES", mutant.key, flush=True)  # noqa: T201
    with SURVIVORS.open(encoding="utf-8", newline="") as file:
        why = {row["mutant"]: row["why"] for row in csv.DictReader(file)}
    for mutant in drawn:
        if not known[mutant.key]:
            print(f"{mutant.path}:{mutant.line}: {mutant.change}: {why.get(mutant.key, 'not looked at')}")  # noqa: T201
    for room in ROOMS:
        ends = [known[mutant.key] for mutant in drawn if mutant.room == room]
        print(f"{room}: {sum(ends)} of {len(ends)} killed")  # noqa: T201
    total = sum(known[mutant.key] for mutant in drawn)
    print(f"all: {total} of {len(drawn)} killed, {100 * total / len(drawn):.0f} %")  # noqa: T201


if __name__ == "__main__":
    main()
