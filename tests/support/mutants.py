"""Mutants: single changes of operators and constants, drawn at random, each tried against the nearest tests.

    make mutants MUTANTS="--seed 1 --count 200"

A change that no test notices is a survivor: a behaviour that no test states, or an equivalent program. Each mutant is
written into a copy of the tree, never into the tree itself. Results are kept after every mutant, so that a run that was
stopped goes on.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = {
    "heshare/running": ["tests/unit/running", "tests/property/test_running.py", "tests/property/test_gangs.py"],
    "heshare/scheduling": ["tests/unit/scheduling", "tests/property/test_plans.py", "tests/golden/test_front.py"],
    "heshare/lab/limits": ["tests/unit/lab/limits", "tests/unit/cli/test_price_command.py"],
    "heshare/ops/executor": ["tests/unit/ops/executor", "tests/unit/ops/jobs"],
}
"""By room: its nearest tests; those of a file of the same name run first."""
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
_LEAST_S, _FACTOR = 120.0, 4.0
"""A mutant that takes so long, and so many times as long as the unchanged tests, hangs."""


@dataclass(frozen=True)
class Mutant:
    """One change: the file, its line, what is changed into what, and the file's text with the change."""

    path: str
    line: int
    change: str
    text: str

    @property
    def room(self) -> str:
        return next(room for room in ROOMS if self.path.startswith(f"{room}/"))

    @property
    def key(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a Python file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for node in _nodes(ast.parse(source)):
        for changed in _changes(node):
            text = _replaced(lines, node, ast.unparse(changed))
            change = f"{ast.unparse(node)} -> {ast.unparse(changed)}".replace("\n", " ")
            yield Mutant(path.relative_to(CHECKOUT).as_posix(), node.lineno, change, text)


def _nodes(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    # Expressions that run: no annotations, no decorators, no texts, no messages of errors.
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            if isinstance(child, ast.AST):
                yield from _nodes(child)


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
    """Return mutants of all rooms, drawn evenly over all places that can be changed."""
    every: list[Mutant] = []
    for room in ROOMS:
        for path in sorted((CHECKOUT / room).rglob("*.py")):
            every += mutants_of(path)
    return random.Random(seed).sample(every, min(count, len(every)))


class Copies:
    """Copies of the tree in which tests run, one for each job."""

    def __init__(self, folder: Path, n: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._limits_s: dict[str, float] = {}
        ignored = shutil.ignore_patterns(".git", ".venv", "build", ".hypothesis", ".pytest_cache", ".mypy_cache")
        for number in range(n):
            # With the times of the files, by which compiled functions are found again.
            self._free.put(Path(shutil.copytree(CHECKOUT, folder / str(number), ignore=ignored, symlinks=True)))

    def measure(self, rooms: set[str]) -> None:
        """Run the unchanged tests of each room, which have to pass."""
        for room in sorted(rooms):
            began_s = time.monotonic()
            place = self._free.get()
            if not _pass(place, _tests(room, ""), None):
                raise SystemExit(f"The tests of {room} fail without a change.")
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
            tests = _tests(mutant.room, Path(mutant.path).stem)
            return not _pass(place, tests, self._limits_s[mutant.room])
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            self._free.put(place)


def _pass(place: Path, tests: list[str], limit_s: float | None) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-m", "not gpu and not slow", *tests]
    environment = {**os.environ, "PYTHONPATH": str(place)}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=place, env=environment, stdout=quiet, stderr=quiet, start_new_session=True
    ) as process:
        try:
            return process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False


def _tests(room: str, stem: str) -> list[str]:
    found = [path for path in ROOMS[room] if (CHECKOUT / path).exists()]
    own = [str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "tests").rglob(f"test_{stem}.py")] if stem else []
    return [*own, *found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=CHECKOUT / "build" / "mutants.json")
    parser.add_argument("--again", action="store_true", help="try the survivors of an earlier run once more")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, bool] = json.loads(given.out.read_text()) if given.out.exists() else {}
    drawn = draw(given.count, given.seed)
    open_ones = [mutant for mutant in drawn if mutant.key not in known or (given.again and not known[mutant.key])]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        copies = Copies(Path(folder), given.jobs)
        copies.measure({mutant.room for mutant in open_ones})
        for mutant, killed in zip(open_ones, pool.map(copies.killed, open_ones), strict=True):
            known[mutant.key] = killed
            given.out.write_text(json.dumps(known, indent=1) + "\n")
            print("killed  " if killed else "SURVIVES", mutant.key, flush=True)  # noqa: T201
    for room in ROOMS:
        ends = [known[mutant.key] for mutant in drawn if mutant.room == room]
        print(f"{room}: {sum(ends)} of {len(ends)} killed")  # noqa: T201
    total = sum(known[mutant.key] for mutant in drawn)
    print(f"all: {total} of {len(drawn)} killed, {100 * total / len(drawn):.0f} %")  # noqa: T201


if __name__ == "__main__":
    main()
