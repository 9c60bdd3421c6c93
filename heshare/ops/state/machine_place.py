"""Where a process runs: its host, the start of that host, and its pid namespace (every container has its own)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MachinePlace:
    """Where a process runs. Its process id means something only at the same place.

    Attributes:
        host: the name of the host, or of the container.
        machine: the id of the installed system; empty where it has none.
        boot: the id of the host's start; containers share it with their host.
        pids: the number of the pid namespace.
    """

    host: str
    machine: str
    boot: str
    pids: str

    @classmethod
    def here(cls) -> MachinePlace:
        """Return the place of this process; what the system does not report is empty."""
        try:
            pids = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
        except OSError:
            pids = ""
        boot = _text("/proc/sys/kernel/random/boot_id")
        return cls(os.uname().nodename, _text("/etc/machine-id"), boot, pids)

    def same_host(self, other: MachinePlace) -> bool:
        """Return whether both are one host, perhaps started again in between."""
        return (self.host, self.machine) == (other.host, other.machine)

    def same_processes(self, other: MachinePlace) -> bool:
        """Return whether a process id means the same process at both."""
        return (self.boot, self.pids) == (other.boot, other.pids)

    def __str__(self) -> str:
        """Return the place for a message."""
        return f"host {self.host}, pid namespace {self.pids or 'unknown'}"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
