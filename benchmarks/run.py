"""Benchmarks of all stages, with their spread: a table, `build/bench.json`, and what is worse than the last result.

Run it as `make bench`. `benchmarks/targets.csv` says which values are asked for. `benchmarks/last.json`, if it exists,
is the last committed result, which `python benchmarks/run.py --keep` replaces. Times depend on the machine, so no test
compares them, and they are compared with a last result of the same machine only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench_rows import Row, table, with_spread, worse

from heshare.shared.files import write_text

STAGES = (
    "cold",
    "stages",
    "executor",
    "power_limit",
    "optimum",
    "device_model_baselines",
    "search",
    "pygmo_rivals",
    "planner",
    "growth",
    "venus",
    "online",
    "waiting",
)
"""Modules of this folder, each with a function `results()` that returns rows."""
UNTIMED = ("optimum", "device_model_baselines")
"""Stages without wall times: they run last and at once."""
LAST = Path(__file__).parent / "last.json"


def machine() -> str:
    """Return the processor, the number of cores, and the versions of the system and of Python."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = models[0] if models else platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def rows_of(stage: str) -> list[Row]:
    """Return the rows of a stage."""
    found: list[Row] = importlib.import_module(stage).results()
    return found


def results(stages: Sequence[str]) -> Iterator[list[Row]]:
    """Yield the rows of stages: of timed ones one after the other, of the others at once.

    Each runs in a new process, so that no time depends on what an earlier stage left in memory.
    """
    untimed = [stage for stage in stages if stage in UNTIMED]
    for at_once in [*([stage] for stage in stages if stage not in UNTIMED), *([untimed] if untimed else [])]:
        start_s = time.perf_counter()
        print(f"{' and '.join(at_once)} ...", end="", flush=True)
        with ProcessPoolExecutor(len(at_once), mp_context=get_context("spawn")) as processes:
            yield from processes.map(rows_of, at_once)
        print(f" {time.perf_counter() - start_s:.0f} s", flush=True)


def main() -> None:
    """Run the stages one after the other, write their rows, and print them with the last result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    parser.add_argument("--only", nargs="+", choices=STAGES, default=STAGES, metavar="STAGE", help=", ".join(STAGES))
    parser.add_argument("--keep", action="store_true", help=f"make this the last result, {LAST.name}")
    arguments = parser.parse_args()
    last = {row["name"]: row for row in json.loads(LAST.read_text("utf-8"))} if LAST.exists() else {}
    here, rows, begin_s = machine(), list[Row](), time.perf_counter()
    for found in results(arguments.only):
        rows += [{**with_spread(row), "machine": here} for row in found]
        write_text(arguments.out, json.dumps(rows, indent=2) + "\n")
    print("\n".join(["", *table(rows, last), ""]))
    got_worse = [row["name"] for row in rows if worse(row, last.get(row["name"]))]
    same = all(row.get("machine") == here for row in last.values())
    print(f"{len(rows)} values in {time.perf_counter() - begin_s:.0f} s on {here}; written to {arguments.out}")
    if last:
        times = "times included" if same else "without times of another machine"
        print(f"Worse than the last result ({times}): {', '.join(got_worse) or 'none'}")
    if arguments.keep:
        kept = {**({} if arguments.only == STAGES else last), **{row["name"]: row for row in rows}}
        write_text(LAST, json.dumps(list(kept.values()), indent=2) + "\n")


if __name__ == "__main__":
    main()
