"""One drill: `python -m support.drills executor --kills 200 --seed 1` prints its counts; faults are exit code 1."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from support.drills import clock_service_drill, executor_drill


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.drills", description="Kill parts of runs at random moments.")
    parser.add_argument("kind", choices=(*executor_drill.DRILLS, "clocks"))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        if given.kind in executor_drill.DRILLS:
            tally = executor_drill.drill(given.kind, given.kills, given.seed, Path(name))
        else:
            tally = clock_service_drill.drill(given.kills, given.seed, Path(name))
    sys.stdout.write(json.dumps(asdict(tally)) + "\n")
    return bool(tally.faults)


if __name__ == "__main__":
    sys.exit(main())
