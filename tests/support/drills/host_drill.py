"""The drill that kills hosts of a run on several: a Dask worker, or the process that holds a host's GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from support import dask_cluster
from support.drills.executor_drill import POLICIES
from support.drills.machine import RUN_S, kill, processes, wait_until_empty
from support.drills.run_folder import RunFolder
from support.drills.tally import Tally

_UUIDS = {"alpha": "GPU-aaaaaaaa-1111-2222-3333-444444444440", "beta": "GPU-bbbbbbbb-1111-2222-3333-444444444440"}


def drill(kills: int, seed: int, folder: Path) -> Tally:
    """Kill hosts of runs on two, one in each run, at random moments; the run goes on with the other."""
    rng, tally = np.random.default_rng(seed), Tally("Dask worker or host process")
    with dask_cluster.scheduler(folder) as address:
        cluster = dask_cluster.Cluster(address, folder)
        try:
            while tally.kills < kills:
                _round(cluster, tally, rng)
        finally:
            cluster.end()
    return tally


def _round(cluster: dask_cluster.Cluster, tally: Tally, rng: np.random.Generator) -> None:
    for name, uuid in _UUIDS.items():
        if name not in cluster.hosts or cluster.hosts[name].process.poll() is not None:
            cluster.join(name, uuid=uuid)
    cluster.joined(len(_UUIDS))
    run = RunFolder(cluster.folder / f"run{tally.runs}")
    run.write(rng)
    options = ("--hosts", cluster.address, "--policy", *POLICIES[tally.runs % 2])
    executor = _start(cluster, run, options)
    while executor.poll() is None and not any("session" in entry for entry in run.entries()):
        time.sleep(0.02)
    time.sleep(2.0 * float(rng.random()))
    if executor.poll() is None:
        victim = cluster.hosts[sorted(_UUIDS)[int(rng.integers(2))]]
        holders = [one.pid for one in processes(victim.folder) if one.part == "host_process"]
        pid = holders[0] if rng.random() < 0.5 and holders else victim.process.pid
        tally.kills += 1
        tally.locked += bool(victim.fake.get("locked_mhz"))
        tally.running += any(one.job for one in processes(victim.folder))
        at_s = kill([pid])
        if pid == victim.process.pid:
            victim.process.wait()
        tally.after_kill(*wait_until_empty(victim.traces, at_s))
    for _ in range(3):
        if executor.wait(RUN_S) == 0:
            break
        # Not every job was moved: the run is resumed, as the page says.
        executor = _start(cluster, run, options)
    if executor.returncode != 0:
        text = (cluster.folder / "printed").read_text("utf-8", errors="replace")[-1500:]
        tally.faults.append(f"run {tally.runs}: exit code {executor.returncode}: {text}")
    left = cluster.traces()
    tally.after_run(run.counts(), [f"{name}: {fault}" for name, faults in left.items() for fault in faults])


def _start(cluster: dask_cluster.Cluster, run: RunFolder, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    with (cluster.folder / "printed").open("wb") as printed:
        words = [sys.executable, "-m", "heshare", *run.words(*options)]
        return subprocess.Popen(
            words, cwd=cluster.folder, env={**os.environ}, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed
        )
