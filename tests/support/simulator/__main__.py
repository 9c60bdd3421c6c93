"""Simulated runs: `python -m support.simulator --seeds 0:1000 --jobs 2` prints each broken promise with its seed."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from multiprocessing import get_context

from support.simulator.simulation import simulate, warm

_CHUNK = 50


def run_seeds(seeds: range) -> list[tuple[int, list[str]]]:
    """Simulate these seeds; return those with broken promises, and what was broken."""
    warm()
    gc.disable()
    gc.collect()  # else the garbage of the last seeds is kept for good
    gc.freeze()  # so that a collection looks at the garbage of seeds alone
    found = []
    for seed in seeds:
        try:
            outcome = simulate(seed)
        except Exception as error:  # of the simulator itself, or a program that never ends
            found.append((seed, [f"{type(error).__name__}: {error}"]))
            continue
        if outcome.violations:
            found.append((seed, outcome.violations))
        del outcome
        if seed % 20 == 0:
            gc.collect()
    gc.enable()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.simulator", description="Simulated runs under faults of a seed.")
    parser.add_argument("--seeds", default="0:1000", help="FIRST:LAST, or one seed whose events are printed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    if ":" not in given.seeds:
        warm()
        outcome = simulate(int(given.seeds))
        sys.stdout.write(outcome.log())
        return bool(outcome.violations)
    first, last = map(int, given.seeds.split(":"))
    began = time.monotonic()
    chunks = [range(start, min(start + _CHUNK, last)) for start in range(first, last, _CHUNK)]
    broken = 0
    with get_context("fork").Pool(given.jobs) as pool:
        for chunk, found in zip(chunks, pool.imap(run_seeds, chunks), strict=True):
            for seed, texts in found:
                broken += 1
                sys.stdout.write(f"seed {seed}: {'; '.join(texts[:4])}\n")
                sys.stdout.flush()
            if chunk.stop % 1000 == 0:
                sys.stderr.write(f"up to seed {chunk.stop - 1} in {time.monotonic() - began:.0f} s\n")
    took_s = time.monotonic() - began
    sys.stdout.write(f"{last - first} seeds in {took_s:.0f} s: {broken} with broken promises\n")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
