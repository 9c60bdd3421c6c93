"""A Dask cluster whose workers meet stand-ins for GPUs: processes of their own, each a machine of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from heshare.devices.meter import Patience
from heshare.files import PACKAGE
from heshare.running import execute
from heshare.testing import drill
from heshare.testing.fakenvml import FakeNvml
from heshare.testing.toy import ToyPredictor

# The stand-in has not all that Dask asks of a real one for its dashboard.
DASK = {"DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"}
QUICK = Patience(look_s=0.2, memory_s=0.3, nvml_s=4.0, shared_s=1.0, grace_s=0.5)


@dataclass
class Host:
    """One worker with its machine."""

    name: str
    folder: Path
    environment: dict[str, str]
    fake: FakeNvml
    process: subprocess.Popen | None = None

    def traces(self):
        """What a run left here: notes, MPS folders, processes, locks that are held, clocks."""
        wrong = [path.name for path in (self.folder / "state" / "heshare").glob("*.json")]
        wrong += [path.name for path in (self.folder / "tmp").glob("hs-mps-*")]
        for process in Path("/proc").glob("[0-9]*"):
            if int(process.name) != self.process.pid and f"HESHARE_DRILL={self.folder}" in environment_of(process):
                wrong.append(f"process {process.name}")
        return wrong + [name for name in ("locked_mhz", "locked1_mhz") if self.fake.get(name)]


@dataclass
class Cluster:
    """A scheduler, its workers by name, and a folder for runs."""

    address: str
    folder: Path
    hosts: dict[str, Host] = field(default_factory=dict)

    def join(self, name, *words, uuid, cards=1, environment=None):
        """Start a worker, with stand-ins of its own unless it shares those of an `environment`."""
        folder = self.folder / f"{name}{len(list(self.folder.glob(f'{name}*')))}"
        folder.mkdir()
        if environment is None:
            environment = drill.prepare(folder) | {"FAKENVML_UUID": uuid, "FAKENVML_FAIL": f"set:count={cards}"}
        host = Host(name, folder, environment, told_apart(folder, environment))
        with (folder / "worker.log").open("wb") as log:
            host.process = self._start(folder, environment, name, words, log)
        self.hosts[name] = host
        return host

    def _start(self, folder, environment, name, words, log):
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", self.address.replace("dask", "tcp"), "--name", name,
             "--no-nanny", "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0", *words],
            env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **DASK, **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )  # fmt: skip

    def run(self, text, into, *, policy="random", devices="nvml", clocks=False, meanwhile=lambda: None):
        """Run jobs on the hosts from this process, and do something else in the meantime."""
        file = self.folder / f"{into}.yaml"
        file.write_text(text)
        beside = threading.Thread(target=meanwhile)
        beside.start()
        try:
            return execute.execute(
                file, self.folder / into, policy=policy, devices=devices, hosts=self.address, predictor=ToyPredictor(),
                allow_clocks=clocks, ways=execute.Ways(patience=QUICK, full_s=1.0),
            )  # fmt: skip
        finally:
            beside.join()

    def resume(self, into):
        """Go on with a run, from this process."""
        ways = execute.Ways(patience=QUICK, full_s=1.0)
        return execute.resume(self.folder / into, predictor=ToyPredictor(), ways=ways)

    def end(self):
        """End the workers."""
        for host in self.hosts.values():
            host.process.terminate()
        for host in self.hosts.values():
            host.process.wait(timeout=30)

    def traces(self, within_s=10.0):
        """What is left on the hosts, once they are done with putting things in order."""
        until = time.monotonic() + within_s
        while (left := {host.name: host.traces() for host in self.hosts.values()}) and time.monotonic() < until:
            if not any(left.values()):
                return {}
            time.sleep(0.05)
        return left


def environment_of(process):
    try:
        return (process / "environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def told_apart(folder, environment):
    """The stand-in of a host, to look at from here: a library reads its environment once, at its first call."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    fake = FakeNvml(folder / "lib" / "libnvidia-ml.so.1")
    fake.get("count")
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    return fake
