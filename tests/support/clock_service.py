"""A clock service of tests: a real process of `heshare clock-service` over the stand-in for NVML."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.kill_drill import MARK

from heshare.ops.clocks import clock_notes

LIMITS = '["*"]\nmin_mhz = 210\nmax_mhz = 1980\n'


@dataclass
class ServiceProcess:
    """The service; its socket, limits and notes are in `folder`, whose path is short enough for a socket's."""

    folder: Path
    environment: Mapping[str, str] | None = None
    limits: str = LIMITS
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def socket(self) -> Path:
        return self.folder / "clocks.sock"

    @property
    def notes(self) -> list[str]:
        return [path.stem.removeprefix("gpu-") for path in clock_notes.notes(self.folder / "notes")]

    def begin(self, *options: str) -> ServiceProcess:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        file = self.folder / "clocks.toml"
        file.write_text(self.limits, encoding="utf-8")
        file.chmod(0o644)
        arguments = [f"--socket={self.socket}", f"--limits={file}", f"--state={self.folder / 'notes'}", *options]
        environment = dict(self.environment or os.environ)
        environment.pop(MARK, None)  # it is no process of a run
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "heshare", "clock-service", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        until = time.monotonic() + 60.0
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the clock service does not start: {self.log()}")
            time.sleep(0.02)
        return self

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket))
            except OSError:
                return False
        return True

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60.0)
