"""All drills, several side by side: `python -m support.drills --kills 200 --seed 1` prints a table of counts."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.drills.tally import Tally, added, table

SHARES = {"executor": 8, "worker": 2, "host": 2, "clocks": 2, "both": 1, "watchdog": 1, "card": 1, "service": 1}
"""Eighths of `--kills` for each kind."""
_CHUNK = 10


def one(kind: str, kills: int, seed: int) -> Tally:
    """Run one drill in this process, in folders of its own."""
    from support.drills import clock_service_drill, executor_drill, host_drill

    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        if kind in ("host", "clocks"):
            return (host_drill if kind == "host" else clock_service_drill).drill(kills, seed, Path(name))
        return executor_drill.drill(kind, kills, seed, Path(name))


def apart(kind: str, kills: int, seed: int) -> Tally:
    """Run one drill in a process of its own."""
    words = ["--one", kind, "--kills", str(kills), "--seed", str(seed)]
    done = subprocess.run([sys.executable, "-m", "support.drills", *words], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return Tally(kind, faults=[f"{kind}, seed {seed}: the drill ended with {done.returncode}"])
    tally = Tally(**json.loads(done.stdout))
    sys.stderr.write(f"{kind}, seed {seed}: {tally.restored} of {tally.kills} restored, {len(tally.faults)} faults\n")
    return tally


def main() -> int:
    """Run the drills of the command line; the exit code is 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="support.drills", description="Kill parts of runs at random moments.")
    parser.add_argument("--kills", type=int, default=200, help="of the executor; fewer of the other parts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side-by-side", type=int, default=2, help="drills at once")
    parser.add_argument("--kinds", nargs="*", choices=tuple(SHARES), default=list(SHARES))
    parser.add_argument("--one", choices=tuple(SHARES), help="this kind alone, with --kills of it; prints JSON")
    given = parser.parse_args()
    if given.one:
        sys.stdout.write(json.dumps(one(given.one, given.kills, given.seed).as_dict()) + "\n")
        return 0
    parts: list[tuple[str, int]] = []
    for kind in given.kinds:
        kills = max(given.kills * SHARES[kind] // 8, 1)
        parts += [(kind, min(_CHUNK, kills - from_)) for from_ in range(0, kills, _CHUNK)]
    kinds, counts = zip(*parts, strict=True)
    with ThreadPoolExecutor(given.side_by_side) as pool:
        tallies = list(pool.map(apart, kinds, counts, range(given.seed, given.seed + len(parts))))
    totals = [added(tally for tally, of in zip(tallies, kinds, strict=True) if of == kind) for kind in given.kinds]
    faults = [fault for total in totals for fault in total.faults]
    sys.stdout.write("\n".join([table(totals), *(faults or ["No faults."])]) + "\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
