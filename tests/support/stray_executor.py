"""A process that starts one job with strays, as an executor does, and waits to be killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from heshare.ops.executor.job_process import ReapedProcess


def run(folder: Path, strays: str) -> None:
    """Start the job in a folder, with its output in `log` there, and wait."""
    with (folder / "log").open("ab") as output:
        environment = {**os.environ, "HS_STRAY": str(folder)}
        ReapedProcess(
            ("sh", "-c", f"trap '' TERM; {strays} echo up; sleep 60; sleep 60"),
            directory=folder, environment=environment, output=output.fileno(),
        )  # fmt: skip
    time.sleep(60)
