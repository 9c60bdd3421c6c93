"""Simulated runs: `python -m support.simulator --seeds 0:1000 --jobs 2` prints violated invariants with their seeds."""

from __future__ import annotations

import argparse
import sys
import time
from multiprocessing import get_context

from support.simulator.simulation import crash_at_every_write, simulate

_CHUNK = 20


def run_seeds(seeds: range) -> list[tuple[int, list[str]]]:
    """Simulate these seeds; return those with violated invariants, and what was found."""
    found = []
    for seed in seeds:
        try:
            violations = simulate(seed).violations
        except Exception as error:  # of the simulator itself
            violations = [f"{type(error).__name__}: {error}"]
        if violations:
            found.append((seed, violations))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.simulator", description="Simulated runs under faults of a seed.")
    parser.add_argument("--seeds", default="0:1000", help="FIRST:LAST, or one seed whose events are printed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--crashes", action="store_true", help="kill a run at each change of a file instead")
    given = parser.parse_args()
    began_s = time.monotonic()
    if given.crashes:
        sys.stdout.write(f"{crash_at_every_write()} crashes in {time.monotonic() - began_s:.0f} s\n")
        return 0
    if ":" not in given.seeds:
        outcome = simulate(int(given.seeds))
        sys.stdout.write("".join(f"{line}\n" for line in outcome.history))
        return bool(outcome.violations)

    first, last = map(int, given.seeds.split(":"))
    chunks = [range(start, min(start + _CHUNK, last)) for start in range(first, last, _CHUNK)]
    broken = 0
    with get_context("fork").Pool(given.jobs) as pool:
        for found in pool.imap(run_seeds, chunks):
            for seed, texts in found:
                broken += 1
                sys.stdout.write(f"seed {seed}: {'; '.join(texts[:4])}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{last - first} seeds in {time.monotonic() - began_s:.0f} s: {broken} with violated invariants\n")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
