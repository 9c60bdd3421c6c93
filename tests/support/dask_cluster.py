"""A Dask scheduler, and workers that use stand-ins for GPUs: a process each, with a machine of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import kill_drill
from support.waiting import until

from heshare.ops.executor import execute
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.outcome import RunOutcome
from heshare.ops.executor.remote.host_offers import connect
from heshare.shared.processes import processes_with
from heshare.testing.toy import ToyPredictor

LONG_S = 120.0
"""Limit of a wait, s; the machine may be loaded."""


@dataclass
class Cluster:
    """A scheduler, its workers by name, and a folder for machines and runs."""

    address: str
    folder: Path
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def join(self, name: str, uuid: str, card: str, memory_mib: int, cores: int) -> None:
        """Start a worker on a new machine with one card."""
        folder = self.folder / name
        folder.mkdir()
        figures = f"set:memory_mib={memory_mib},set:free_mib={memory_mib - 500},set:cores={cores}"
        own = {"FAKENVML_UUID": uuid, "FAKENVML_NAME": card, "FAKENVML_FAIL": figures, **kill_drill.prepare(folder)}
        words = ["--no-nanny", "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0"]
        address = self.address.replace("dask://", "tcp://")
        with (folder / "worker.log").open("wb") as log:
            self.workers[name] = _start("dask_worker", [address, "--name", name, *words], self.folder, own, log)

    def joined(self, count: int) -> None:
        """Wait until the scheduler has so many workers."""
        with connect(self.address) as client:
            assert until(lambda: len(client.nthreads()) == count, LONG_S), f"see worker.log in {self.folder}"

    def run(self, text: str, into: str, **more: Any) -> RunOutcome:
        """Run jobs on the hosts from this process."""
        file = self.folder / f"{into}.yaml"
        file.write_text(text, encoding="utf-8")
        given: dict[str, Any] = {"policy": "random", "devices": "nvml", **more}
        return execute.execute(
            file, self.folder / into, hosts=self.address, predictor=ToyPredictor(), options=_options(), **given
        )

    def resume(self, into: str) -> RunOutcome:
        """Resume a run, from this process."""
        return execute.resume(self.folder / into, predictor=ToyPredictor(), options=_options())

    def kill(self, name: str) -> None:
        """Kill a worker, and forget it."""
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()

    def clean(self) -> bool:
        """Return whether no run has left anything on any host, after a while for the cleanup."""
        return until(lambda: not list(self._traces()), LONG_S)

    def _traces(self) -> Iterator[str]:
        workers = {worker.pid for worker in self.workers.values()}
        for folder in (state.parent for state in self.folder.glob("*/state")):
            yield from map(str, (folder / "state" / "heshare").glob("*.json"))
            yield from map(str, (folder / "tmp").glob("hs-mps-*"))
            yield from map(str, processes_with(f"{kill_drill.MARK}={folder}") - workers)


@contextmanager
def scheduler(folder: Path, *more: str) -> Iterator[Cluster]:
    """Yield a cluster without workers, with a scheduler in a process of its own; `--protocol tls` for TLS."""
    file = folder / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file), *more]
    process = _start("dask_scheduler", words, folder, {}, subprocess.DEVNULL)
    cluster = Cluster("", folder)
    try:
        # The file exists a moment before it is whole.
        assert until(lambda: file.exists() and file.read_bytes().rstrip().endswith(b"}"), LONG_S)
        cluster.address = json.loads(file.read_text(encoding="utf-8"))["address"].replace("tcp://", "dask://")
        yield cluster
    finally:
        for worker in cluster.workers.values():
            worker.terminate()
            worker.wait()
        process.kill()
        process.wait()


def _options() -> execute.ExecutorOptions:
    quick = Timeouts(poll_s=0.2, memory_s=0.3, nvml_s=30.0, host_s=60.0, shared_s=1.0, grace_s=0.5)
    return execute.ExecutorOptions(timeouts=quick)


def _start(
    program: str, words: list[str], folder: Path, environment: dict[str, str], log: Any
) -> subprocess.Popen[bytes]:
    # The stand-in lacks functions of NVML that Dask calls for its dashboard.
    own = {**os.environ, "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False", **environment}
    command = [sys.executable, "-m", f"distributed.cli.{program}", *words]
    return subprocess.Popen(
        command, env=own, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
    )
