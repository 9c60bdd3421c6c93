"""A Dask cluster whose workers use stand-ins for GPUs: a process each, with a machine of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from support import kill_drill
from support.fakenvml import FakeNvml

from heshare.ops.executor import execute
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.outcome import RunOutcome
from heshare.ops.executor.remote.host_offers import connect
from heshare.testing.toy import ToyPredictor

DASK = {"DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"}
"""The stand-in lacks functions that Dask calls for its dashboard."""

QUICK = Timeouts(poll_s=0.2, memory_s=0.3, nvml_s=2.0, host_s=4.0, shared_s=1.0, grace_s=0.5)


@dataclass(frozen=True)
class Host:
    """A worker with its machine.

    Attributes:
        name: of the worker.
        folder: its machine's.
        fake: its cards.
        process: the worker.
    """

    name: str
    folder: Path
    fake: FakeNvml
    process: subprocess.Popen[bytes]

    def traces(self) -> list[str]:
        """Return what a run left here: notes, MPS folders, processes, clocks."""
        wrong = [path.name for path in (self.folder / "state" / "heshare").glob("*.json")]
        wrong += [path.name for path in (self.folder / "tmp").glob("hs-mps-*")]
        mark = f"{kill_drill.MARK}={self.folder}"
        for process in Path("/proc").glob("[0-9]*"):
            if int(process.name) != self.process.pid and mark in _environment(process):
                wrong.append(f"process {process.name}")
        return wrong + [name for name in ("locked_mhz", "locked1_mhz") if self.fake.get(name)]


@dataclass
class Cluster:
    """A scheduler, its workers by name, and a folder for runs.

    Attributes:
        address: of the scheduler, `dask://host:port` or `tls://host:port`.
        folder: for machines and runs.
        hosts: the workers.
    """

    address: str
    folder: Path
    hosts: dict[str, Host] = field(default_factory=dict)

    def join(self, name: str, *words: str, uuid: str, cards: int = 1) -> Host:
        """Start a worker on a new machine.

        Args:
            name: of the worker.
            words: more for its command line.
            uuid: of its first card.
            cards: how many it has.
        """
        folder = self.folder / f"{name}{len(list(self.folder.glob(f'{name}*')))}"
        folder.mkdir()
        own = kill_drill.prepare(folder) | {"FAKENVML_UUID": uuid, "FAKENVML_FAIL": f"set:count={cards}"}
        with (folder / "worker.log").open("wb") as log:
            process = self._start({**os.environ, **DASK, **own}, name, words, log)
        self.hosts[name] = Host(name, folder, _cards(folder, own), process)
        return self.hosts[name]

    def joined(self, count: int, *, within_s: float = 60.0) -> None:
        """Wait until the scheduler has so many workers.

        Raises:
            TimeoutError: it does not come to that.
        """
        until = time.monotonic() + within_s
        with connect(self.address) as client:
            while len(workers := client.nthreads()) != count:
                if time.monotonic() >= until:
                    raise TimeoutError(f"{len(workers)} workers, not {count}; see worker.log in {self.folder}")
                time.sleep(0.02)

    def run(
        self,
        text: str,
        into: str,
        *,
        policy: str = "random",
        devices: str = "nvml",
        clocks: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> RunOutcome:
        """Run jobs on the hosts from this process, and call `meanwhile` in a thread."""
        file = self.folder / f"{into}.yaml"
        file.write_text(text, encoding="utf-8")
        beside = threading.Thread(target=meanwhile)
        beside.start()
        try:
            return execute.execute(
                file,
                self.folder / into,
                policy=policy,
                devices=devices,
                hosts=self.address,
                predictor=ToyPredictor(),
                allow_clocks=clocks,
                options=execute.ExecutorOptions(timeouts=QUICK, full_disk_s=1.0),
            )
        finally:
            beside.join()

    def resume(self, into: str) -> RunOutcome:
        """Resume a run, from this process."""
        options = execute.ExecutorOptions(timeouts=QUICK, full_disk_s=1.0)
        return execute.resume(self.folder / into, predictor=ToyPredictor(), options=options)

    def end(self) -> None:
        """End the workers."""
        for host in self.hosts.values():
            host.process.terminate()
        for host in self.hosts.values():
            host.process.wait(timeout=30)

    def traces(self, within_s: float = 10.0) -> dict[str, list[str]]:
        """Return what each host has left behind, after a while for the cleanup."""
        until = time.monotonic() + within_s
        while True:
            left = {host.name: wrong for host in self.hosts.values() if (wrong := host.traces())}
            if not left or time.monotonic() >= until:
                return left
            time.sleep(0.05)

    def _start(
        self, environment: dict[str, str], name: str, words: tuple[str, ...], log: BinaryIO
    ) -> subprocess.Popen[bytes]:
        usual = ["--no-nanny", "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0"]
        scheduler = self.address.replace("dask://", "tcp://")
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--name", name, *usual, *words],
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


@contextmanager
def scheduler(folder: Path, *more: str) -> Iterator[str]:
    """Yield the address, `dask://host:port`, of a scheduler in a process of its own; `--protocol tls`: `tls://`.

    Raises:
        TimeoutError: it does not start.
    """
    file = folder / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file), *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *words],
        env={**os.environ, **DASK},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60.0
        # The file exists a moment before it is whole.
        while not (file.exists() and file.read_bytes().rstrip().endswith(b"}")):
            if time.monotonic() >= until:
                raise TimeoutError(f"no scheduler wrote {file}")
            time.sleep(0.02)
        yield json.loads(file.read_text(encoding="utf-8"))["address"].replace("tcp://", "dask://")
    finally:
        process.kill()
        process.wait()


def _environment(process: Path) -> list[str]:
    try:
        return (process / "environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _cards(folder: Path, environment: dict[str, str]) -> FakeNvml:
    """Return the stand-in of a host for this process; a library reads its environment once, at its first call."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        fake = FakeNvml(folder / "lib" / "libnvidia-ml.so.1")
        fake.get("count")
    finally:
        os.environ.clear()
        os.environ.update(before)
    return fake
