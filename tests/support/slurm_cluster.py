"""Debian's Slurm with stand-in GPUs, in namespaces of its own: nothing of the machine changes, and all of it ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from support import fake_mps

REPOSITORY = Path(__file__).resolve().parents[2]
NODE = "node1"
SETTINGS = "LEAST_MHZ=1\nMOST_MHZ=10000\n"
_PLACE = Path(__file__).with_name("slurm_place.sh")
_SCRIPTS = REPOSITORY / "docs/slurm"
_PROGRAMS = ("squeue", "scontrol", "sbatch", "scancel")
_CONFIGURATION = """
ClusterName=stand-in
SlurmctldHost=localhost
AuthType=auth/munge
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu,mps,shard
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
PrologFlags=Alloc
Prolog=/etc/slurm/prolog.sh
Epilog=/etc/slurm/epilog.sh
TaskProlog=/etc/slurm/taskprolog.sh
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 Gres={gres}
PartitionName=gpu Nodes={node} Default=YES State=UP
"""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_NVIDIA_SMI = """#!/bin/sh
echo "$@" >>/tmp/nvidia-smi.log
case "$*" in *query-gpu=uuid*) echo "GPU-stand-in-$2" ;; esac
"""


class NoSlurmError(Exception):
    """Slurm cannot be run here; the message says why."""


class SlurmCluster:
    """One node with a card for each type, within a `with`.

    Args:
        folder: an empty folder; it gets programs `squeue`, `scontrol`, ... that call those of the place.
        types: the types of the cards.
        gres: how they are shared, `shard` or `mps`.

    Attributes:
        programs: the folder of the programs, for the PATH.
        root: the place's files, seen from outside.
    """

    def __init__(self, folder: Path, types: tuple[str, ...], *, gres: str = "shard") -> None:
        self.programs, self._mount = folder / "programs", folder / "place"
        self._types, self._gres = types, gres
        self._place: subprocess.Popen[str] | None = None

    def __enter__(self) -> SlurmCluster:
        why = _why_not()
        if why:
            raise NoSlurmError(why)
        for made in (self.programs, self._mount):
            made.mkdir()
        try:
            self._open()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the place: every process in it is killed, and its file systems are gone."""
        if self._place is not None:
            assert self._place.stdin is not None
            self._place.stdin.close()
            try:
                self._place.wait(5)
            except subprocess.TimeoutExpired:
                self._place.kill()
                self._place.wait()
            for stream in (self._place.stdout, self._place.stderr):
                assert stream is not None
                stream.close()
            self._place = None

    def run(self, *command: str, text: str | None = None) -> str:
        done = subprocess.run(
            [*self._enter(), *command], input=text, capture_output=True, text=True, timeout=60, env=_environment()
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def log(self) -> str:
        ends = [(self.root / f"tmp/{name}.log").read_text(errors="replace")[-1500:] for name in ("slurmctld", "slurmd")]
        return "\n\n".join(ends)

    def _open(self) -> None:
        outside = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, REPOSITORY)}
        bound = [str(path) for path in outside if path.stat().st_dev != Path("/").stat().st_dev]
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", str(_PLACE), str(self._mount)]
        self._place = subprocess.Popen(
            [*command, *bound],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        assert self._place.stdout is not None
        assert self._place.stderr is not None
        if self._place.stdout.readline().strip() != "ready":
            raise NoSlurmError(f"a private place with Slurm cannot be made: {self._place.stderr.read()[-500:]}")
        children = Path(f"/proc/{self._place.pid}/task/{self._place.pid}/children").read_text().split()
        self._pid = int(children[0])
        self.root = Path(f"/proc/{self._pid}/root")

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._pid}", "--mount", "--pid", "--net", "--root", "--wd"]

    def _start(self) -> None:
        for name in ("prolog.sh", "epilog.sh", "taskprolog.sh"):
            shutil.copy(_SCRIPTS / name, self.root / "etc/slurm" / name)
        devices = list(zip(self._types, _DEVICES, strict=False))
        gres = ",".join(
            [f"gpu:{kind}:1" for kind in self._types] + [f"{self._gres}:{kind}:100" for kind in self._types]
        )
        lines = [f"Name=gpu Type={kind} File={file}" for kind, file in devices]
        lines += [f"Name={self._gres} Type={kind} Count=100 File={file}" for kind, file in devices]
        self._write("etc/slurm/slurm.conf", _CONFIGURATION.format(node=NODE, gres=gres))
        self._write("etc/slurm/gres.conf", "\n".join(lines) + "\n")
        self._write("etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        (self.root / "etc/heshare").mkdir(exist_ok=True)
        self._write("etc/heshare/slurm.sh", SETTINGS)
        self._write("usr/local/bin/nvidia-smi", _NVIDIA_SMI).chmod(0o755)
        fake_mps.install(self.root / "usr/local/bin")
        start = """
            mkdir -p /run/munge /var/log/munge /var/lib/munge /var/spool/slurmctld /var/spool/slurmd
            chown munge: /run/munge /var/log/munge /var/lib/munge
            runuser -u munge -- munged
            setsid slurmctld -D >/tmp/slurmctld.log 2>&1 </dev/null &
            setsid slurmd -D -N {node} >/tmp/slurmd.log 2>&1 </dev/null &
        """
        self.run("bash", "-euc", textwrap.dedent(start).format(node=NODE))
        self._wait_for("idle", 30)
        for name in _PROGRAMS:
            program = self.programs / name
            program.write_text(f'#!/bin/sh\nexec {" ".join(self._enter())} {name} "$@"\n')
            program.chmod(0o755)

    def _write(self, path: str, text: str) -> Path:
        target = self.root / path
        target.write_text(text)
        return target

    def _wait_for(self, state: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            try:
                if self.run("sinfo", "-h", "-N", "-o", "%t").strip() == state:
                    return
            except AssertionError:
                pass  # slurmctld does not answer yet
            if time.monotonic() > until:
                raise AssertionError(f"the node is not {state} after {seconds:g} s\n{self.log()}")
            time.sleep(0.2)


def _environment() -> dict[str, str]:
    """Return the environment with the folders of an administrator's programs, which a PATH need not have."""
    return os.environ | {"PATH": f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"}


def _why_not() -> str:
    """Return why Slurm cannot be run here, or nothing."""
    if os.geteuid() != 0:
        return "it takes root"
    programs, path = ("apt-get", "unshare", "nsenter", "chroot"), _environment()["PATH"]
    missing = [name for name in programs if shutil.which(name, path=path) is None]
    if missing:
        return f"there is no {', '.join(missing)}"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"namespaces cannot be made: {tried.stderr.strip()}"
