"""Gives the modules of `ops` a machine in memory in the place of the system's: each edge is an import of theirs."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

from support.simulator.cards import Card, JobPlan, Jobs, SimNvml, SimNvmlSession
from support.simulator.channels import (
    Popen,
    SimCondition,
    SimLock,
    SimSelect,
    SimSocket,
    SimSubprocess,
    SimThread,
    SimThreading,
)
from support.simulator.disk import Disk, SimFcntl, SimOs, SimPath, SimShutil, SimTemporary, SimTime
from support.simulator.kernel import Machine

from heshare.ops import descriptors, mps, nvml_device, private_files
from heshare.ops.clocks import clock_notes, clock_service, served_card, service_clock
from heshare.ops.executor import (
    execute,
    gpu_lock,
    job_process,
    job_tasks,
    local_device,
    local_gpus,
    run_control,
    run_observer,
    watchdog,
)
from heshare.ops.jobs import entries, run_journal
from heshare.ops.nvml import binding, card_health, card_process, card_sampler, card_survey, guarded_gpu
from heshare.ops.state import held_note, run_note
from heshare.ops.workers import job_cgroup, output_limit
from heshare.running import clock
from heshare.shared import file_lock, files, journal, processes

MODULES: tuple[ModuleType, ...] = (
    descriptors,
    mps, nvml_device, private_files, clock_notes, clock_service, served_card, service_clock, execute, gpu_lock,
    job_process, job_tasks, local_device, local_gpus, run_control, run_observer, watchdog,
    run_journal, binding, card_health, card_process, card_sampler, card_survey, guarded_gpu, held_note, run_note,
    output_limit, clock, file_lock, files, journal, processes,
)  # fmt: skip
"""The modules that run on the machine in memory; all else that they call only computes."""


class SimMachine(Machine):
    """A machine in memory with its disk, its cards, its jobs, and what the modules of `ops` import of the system."""

    def __init__(self, cards: int, plans: dict[str, JobPlan], *, mps: bool = True) -> None:
        super().__init__()
        self.boot, self.mps_mode = 1, "obeys"
        self.disk = Disk(self)
        self.os = SimOs(self, self.disk)
        self.cards = [Card(f"GPU-{index}", self, since_s=self.now) for index in range(cards)]
        self.jobs = Jobs(self, self.cards, plans)
        self.nvml = SimNvml(self, self.cards)
        self.shutil = SimShutil(self.os)
        if mps:
            self.shutil.programs.add("nvidia-cuda-mps-control")
        self.starts: Any = lambda name: None
        for path, mode in (("/tmp", 0o777), ("/locks", 0o777), ("/state", 0o700), ("/runs", 0o700), ("/home", 0o700)):
            self.disk.make(path, None, mode)
        self.disk.make("/etc/machine-id", b"machine")
        self.disk.make("/dev/null", b"", 0o666)

    def environment(self, **more: str) -> dict[str, str]:
        return {"HOME": "/home", "PATH": "/usr/bin", "XDG_STATE_HOME": "/state", "HESHARE_LOCKS": "/locks", **more}

    @contextmanager
    def _handling(self, handler: Any) -> Iterator[None]:
        handlers = self.process.handlers
        handlers.append(handler)
        try:
            yield
        finally:
            handlers.remove(handler)

    def _ignore(self) -> None:
        self.process.ignores = True

    def _session(self, popen: Popen, program: Any) -> None:
        popen.process.run(program)

    def _programs(self) -> dict[str, Any]:
        def card_program(popen: Popen) -> None:
            popen.process.run(lambda: card_process.main(int(popen.args[3]), popen.args[4]))
            popen.process.ignores = True

        def service_program(popen: Popen) -> None:
            popen.process.run(lambda: clock_service.serve_run(int(popen.args[3]), SimPath(popen.args[4])))

        def watchdog_program(popen: Popen) -> None:
            popen.process.run(lambda: watchdog.main(popen.args[3]))

        return {
            "heshare.ops.nvml.card_process": card_program,
            "heshare.ops.clocks.clock_service": service_program,
            "heshare.ops.executor.watchdog": watchdog_program,
            "job_reaper": self.jobs.reaper,
            "nvidia-cuda-mps-control": self.jobs.control,
        }

    def _system(self) -> SimpleNamespace:
        """What `sys` is: the standard streams of the process."""
        machine = self

        class System(SimpleNamespace):
            orig_argv, argv, executable, platform = ["heshare"], ["heshare"], "python", "linux"
            stderr = SimpleNamespace(write=lambda text: None, flush=lambda: None)

            @property
            def stdin(self) -> Any:
                return SimpleNamespace(buffer=machine.process.streams["stdin"])

            @property
            def stdout(self) -> Any:
                stream = machine.process.streams["stdout"]
                return SimpleNamespace(write=lambda text: stream.write(text.encode()), flush=lambda: None)

        return System()

    def edges(self) -> dict[str, Any]:
        """Return what the names that modules import from outside the package mean on this machine."""
        tokens = itertools.count(1)
        select = SimSelect(self)
        names: dict[str, Any] = {
            "os": self.os,
            "time": SimTime(self),
            "fcntl": SimFcntl(self.os),
            "shutil": self.shutil,
            "tempfile": SimTemporary(self.os),
            "socket": SimSocket(self),
            "select": select,
            "connection": select,
            "subprocess": SimSubprocess,
            "threading": SimThreading,
            "Path": SimPath,
            "sys": self._system(),
            "uuid4": lambda: UUID(int=next(tokens)),
            "secrets": SimpleNamespace(token_hex=lambda size: f"{next(tokens):0{2 * size}x}"),
            "start_unprivileged": Popen,
            "resource": SimpleNamespace(
                RLIMIT_NOFILE=7,
                RLIM_INFINITY=-1,
                getrlimit=lambda kind: (1024, 4096),
                setrlimit=lambda kind, limits: None,
            ),
            "at_end": lambda callback: lambda: None,
            "handling": self._handling,
            "signals": SimpleNamespace(ignore=self._ignore),
            "Nvml": SimNvmlSession,
        }
        return names

    @contextmanager
    def linked(self, more: Mapping[tuple[ModuleType, str], Any] | None = None) -> Iterator[None]:
        """Run the modules of `ops` on this machine; `more` replaces further names of modules."""
        names, before = self.edges(), list[tuple[ModuleType, str, Any]]()
        for kind in (SimThread, SimLock, SimCondition, Popen):
            kind.machine = self  # type: ignore[attr-defined]
        Popen.programs, Popen.begin = self._programs(), staticmethod(lambda name: self.starts(name))
        SimNvmlSession.functions, SimPath.os = self.nvml, self.os

        def put(module: ModuleType, name: str, value: Any) -> None:
            before.append((module, name, module.__dict__.get(name, _ABSENT)))
            setattr(module, name, value)

        try:
            for module, name in _imported(tuple(names)):
                put(module, name, names[name])
            put(processes, "signal", _Signal(self))
            put(job_cgroup, "_own_group", lambda: None)
            put(held_note, "open", self.os.open_stream)
            put(entries, "_path", lambda kind, value: SimPath(value))
            for (module, name), value in (more or {}).items():
                put(module, name, value)
            yield
        finally:
            for module, name, value in reversed(before):
                if value is _ABSENT:
                    delattr(module, name)
                else:
                    setattr(module, name, value)


_ABSENT = object()


@cache
def _imported(names: tuple[str, ...]) -> list[tuple[ModuleType, str]]:
    """Return which of these names which modules import."""
    return [(module, name) for module in MODULES for name in names if name in vars(module)]


class _Signal:
    """What `signal` is to the one module that sends signals."""

    def __init__(self, machine: SimMachine) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def pidfd_send_signal(self, number: int, what: int) -> None:
        self._machine.alive()
        self._machine.process.files[number].process.signal(what)
