"""Commands of heshare as processes, on a machine of stand-ins for NVML and MPS."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import kill_drill
from support.fakenvml import compiler
from support.run_entries import journal_lines
from support.waiting import until

from heshare.shared.errors import InputError

PATIENCE_S = 300.0
"""For the end of a process, on a machine that is busy with other things."""


class CommandMachine:
    """A folder with stand-ins, in which commands run; their run is in `jobs-run`."""

    def __init__(self, folder: Path) -> None:
        if compiler() is None:
            pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
        self.folder, self.run = folder, folder / "jobs-run"
        self.environment = {**os.environ, **kill_drill.prepare(folder)}

    def start(self, *words: str, before: tuple[str, ...] = (), **streams: Any) -> subprocess.Popen[bytes]:
        """Start a command, by itself or after the words of another one, with pipes unless other streams are given."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        command = [*before, sys.executable, "-m", "heshare", *words]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **streams)

    def start_run(self, *options: str, **streams: Any) -> subprocess.Popen[bytes]:
        """Start the run of `jobs.yaml`."""
        words = ("jobs", "run", "jobs.yaml", "--policy", "random:all-at-once", *options)
        return self.start(*words, **streams)

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """Return the entries of a kind in the journal, as far as it is there."""
        with suppress(FileNotFoundError, InputError):
            return [line[kind] for line in journal_lines(self.run) if kind in line]
        return []

    def wait_for(self, condition: Callable[[], object]) -> None:
        assert until(condition, PATIENCE_S)
