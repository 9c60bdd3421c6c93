"""The cards of the machine in memory, as NVML reports them; the MPS daemon; and the processes of jobs."""

# ruff: noqa: N802 (the names are those of NVML)
from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

from support.simulator.channels import Popen
from support.simulator.kernel import Machine, Process

from heshare.devices.board_power import idle_power_w, switching
from heshare.devices.constants import default
from heshare.ops.nvml.binding import NvmlGpu, fault

GRID_MHZ = tuple(range(1410, 1981, 15))
IDLE_W, LIMIT_W, MOST_LOAD_W = 70.0, 700.0, 600.0
"""Power of a card that idles, its limit, and what its jobs draw at most at the top clock, W."""

LOADS_S = 1.0
"""How long a job loads before it draws power, s."""


@cache
def _power_at(sm_mhz: int) -> tuple[float, float]:
    """Return the power of a held clock without jobs, W, and the part of its jobs' power that is left at it."""
    power = default().power["H100"]
    return idle_power_w(power, sm_mhz, GRID_MHZ[-1]), switching(power, sm_mhz, GRID_MHZ[-1])


@dataclass(eq=False)
class Card:
    """A card: its clock, its energy, and what is wrong with it."""

    uuid: str
    machine: Machine
    locked_mhz: int | None = None
    jobs: dict[int, float] = field(default_factory=dict)
    energy_j: float = 5000.0
    since_s: float = 0.0
    lost: bool = False
    hung_until_s: float = -math.inf
    slow_s: float = 0.0
    offset_j: float = 0.0
    failing: dict[str, tuple[int, float]] = field(default_factory=dict)
    lying: dict[str, tuple[float, float]] = field(default_factory=dict)
    reasons: int = 0
    used_mib: float = 0.0
    events: list[int] = field(default_factory=list)

    @property
    def sm_mhz(self) -> int:
        return self.locked_mhz or GRID_MHZ[-1]

    def power_w(self) -> float:
        """Return the power of the package's model of the card, for jobs that draw what they were given."""
        held_w, part = _power_at(self.sm_mhz)
        return held_w + part * min(MOST_LOAD_W, sum(self.jobs.values())) if self.jobs else IDLE_W

    def settle(self) -> None:
        """Bring its energy to the present, before its power changes."""
        self.energy_j += self.power_w() * (self.machine.now - self.since_s)
        self.since_s = self.machine.now


class NvmlCodeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class SimNvml:
    """The functions of NVML's binding over the machine's cards."""

    NVMLError = NvmlCodeError
    NVML_CLOCK_SM, NVML_FI_DEV_POWER_INSTANT, NVML_SUCCESS, NVML_TEMPERATURE_GPU = 1, 186, 0, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_VOLATILE_ECC = 1

    class NVMLLibraryMismatchError(Exception):
        pass

    def __init__(self, machine: Machine, cards: list[Card]) -> None:
        self._machine, self._cards = machine, cards
        self.before: Any = lambda name, card: None
        self.locking: Any = lambda card: None
        self.unprivileged = False

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        method = getattr(type(self), "_" + name.removeprefix("nvmlDevice").removeprefix("nvml"), None)
        if method is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            card = arguments[0] if arguments and isinstance(arguments[0], Card) else None
            self._enter(name, card)
            return method(self, *arguments)

        setattr(self, name, call)
        return call

    def _enter(self, name: str, card: Card | None) -> None:
        machine = self._machine
        machine.alive()
        self.before(name, card)
        if card is None:
            return
        while card.hung_until_s > machine.now:
            machine.sleep(card.hung_until_s - machine.now)
        if card.slow_s:
            machine.sleep(card.slow_s)
        if card.lost:
            raise NvmlCodeError(15)
        code, until_s = card.failing.get(name, (0, 0.0))
        if code and until_s > machine.now:
            raise NvmlCodeError(code)

    def _read(self, card: Card, name: str, value: float) -> float:
        lie, until_s = card.lying.get(name, (0.0, 0.0))
        return lie if until_s > self._machine.now else value

    def _GetHandleByIndex(self, index: int) -> Card:
        if index >= len(self._cards):
            raise NvmlCodeError(6)
        self._enter("nvmlDeviceGetHandleByIndex", self._cards[index])
        return self._cards[index]

    def _GetHandleByUUID(self, uuid: str) -> Card:
        for card in self._cards:
            if card.uuid == uuid:
                self._enter("nvmlDeviceGetHandleByUUID", card)
                return card
        raise NvmlCodeError(6)

    def _GetCount(self) -> int:
        return len(self._cards)

    def _GetName(self, card: Card) -> str:
        return "NVIDIA H100 80GB HBM3"

    def _GetUUID(self, card: Card) -> str:
        return card.uuid

    def _GetNumGpuCores(self, card: Card) -> int:
        return 16896

    def _GetSupportedMemoryClocks(self, card: Card) -> list[int]:
        return [2619]

    def _GetSupportedGraphicsClocks(self, card: Card, memory_mhz: int) -> tuple[int, ...]:
        return GRID_MHZ

    def _GetClockInfo(self, card: Card, kind: int) -> float:
        return self._read(card, "clock", card.sm_mhz)

    def _GetCurrentClocksEventReasons(self, card: Card) -> int:
        return card.reasons

    def _GetFieldValues(self, card: Card, fields: list[int]) -> list[Any]:
        value = SimpleNamespace(dVal=self._GetPowerUsage(card))
        return [SimpleNamespace(nvmlReturn=0, valueType=0, value=value)]

    def _GetPowerUsage(self, card: Card) -> float:
        return self._read(card, "power", card.power_w()) * 1e3

    def _GetTotalEnergyConsumption(self, card: Card) -> float:
        card.settle()
        return self._read(card, "energy", card.energy_j + card.offset_j) * 1e3

    def _GetMemoryInfo(self, card: Card) -> Any:
        total = 81559 << 20
        return SimpleNamespace(total=total, free=int(total - card.used_mib * 2**20))

    def _GetPowerManagementLimit(self, card: Card) -> float:
        return LIMIT_W * 1e3

    def _GetPersistenceMode(self, card: Card) -> int:
        return 1

    def _GetComputeMode(self, card: Card) -> int:
        return 0

    def _GetMigMode(self, card: Card) -> tuple[int, int]:
        return 0, 0

    def _GetComputeRunningProcesses(self, card: Card) -> list[Any]:
        return []

    def _SetGpuLockedClocks(self, card: Card, low: int, high: int) -> None:
        if self.unprivileged:
            raise NvmlCodeError(4)
        self.locking(card)
        card.settle()
        before_mhz, card.locked_mhz = card.sm_mhz, low
        self._machine.log("lock", card.uuid, low)
        self._machine.powered(starts=low > before_mhz)

    def _ResetGpuLockedClocks(self, card: Card) -> None:
        card.settle()
        before_mhz, card.locked_mhz = card.sm_mhz, None
        self._machine.log("unlock", card.uuid)
        self._machine.powered(starts=card.sm_mhz > before_mhz)

    def _GetSupportedEventTypes(self, card: Card) -> int:
        return 8

    def _EventSetCreate(self) -> list[Card]:
        return []

    def _RegisterEvents(self, card: Card, types: int, events: list[Card]) -> None:
        events.append(card)

    def _EventSetWait_v2(self, events: list[Card], timeout: int) -> Any:
        if not events[0].events:
            raise NvmlCodeError(10)
        return SimpleNamespace(eventType=8, eventData=events[0].events.pop(0))

    def _EventSetFree(self, events: Any) -> None:
        pass

    def _GetTotalEccErrors(self, card: Card, kind: int, counter: int) -> int:
        return 0

    def _GetRemappedRows(self, card: Card) -> tuple[int, int, int, int]:
        return 0, 0, 0, 0


class SimNvmlSession:
    """What `binding.Nvml` is: the package's own `NvmlGpu` over the machine's functions."""

    functions: SimNvml

    def __init__(self) -> None:
        self.functions.before("nvmlInit", None)

    def count(self) -> int:
        return int(self.functions.nvmlDeviceGetCount())

    def card(self, which: int | str) -> NvmlGpu:
        call = "nvmlDeviceGetHandleByIndex" if isinstance(which, int) else "nvmlDeviceGetHandleByUUID"
        try:
            handle = getattr(self.functions, call)(which)
        except NvmlCodeError as error:
            raise fault(f"GPU {which}", call, error.value) from error
        return NvmlGpu(self.functions, handle, f"GPU {which}")

    def close(self) -> None:
        pass


@dataclass
class JobPlan:
    """How a job behaves: its time, s; exit codes of its first attempts; whether it obeys SIGTERM; power on a GPU, W."""

    duration_s: float
    codes: tuple[int, ...] = ()
    deaf: bool = False
    power_w: float = 150.0
    output: bytes = b"done\n"
    gpus: int = 1
    arrival_s: float = 0.0


@dataclass
class JobRun:
    """What really happened to one start of a job."""

    key: str
    attempt: int
    folder: str
    cards: tuple[str, ...]
    began_s: float
    ended_s: float = math.nan
    code: int | None = None


class Jobs:
    """The processes of jobs, each below a reaper that is modelled after `job_reaper`."""

    def __init__(self, machine: Machine, cards: list[Card], plans: dict[str, JobPlan]) -> None:
        self._machine, self._cards, self.plans = machine, {card.uuid: card for card in cards}, plans
        self.runs: list[JobRun] = []
        self.starting: Any = lambda run: None
        self.daemons: dict[str, Process] = {}

    def reaper(self, popen: Popen) -> None:
        """Start a reaper: it reads its order, starts the job, and ends it on request or at the end of its input."""
        machine, process = self._machine, popen.process
        end = process.files[popen.process.streams["stdin"].fileno()]
        order = bytearray()
        requests = bytearray()
        job: list[_Job] = []

        def hear(data: bytes) -> None:
            if job:
                job[0].request(data)
                return
            if len(order) >= 10 and len(order) >= 10 + int(order[:10]):
                requests.extend(data)  # the order is complete, and the job about to start
                return
            order.extend(data)
            if len(order) >= 10 and len(order) >= 10 + int(order[:10]):
                texts = bytes(order[10:]).split(b"\0")[:-1]
                count = int(texts[0])
                environment = dict(text.decode().split("=", 1) for text in texts[1 : count + 1])
                machine.later(0.01, begin, environment)

        def begin(environment: dict[str, str]) -> None:
            if process.alive:
                job.append(_Job(self, process, environment, popen))
                job[0].request(bytes(requests))
                if end.ended:
                    job[0].orphan()

        def ended(number: int = 0) -> None:
            if not process.alive:
                return  # it was killed, and can end nothing any more
            if job:
                job[0].orphan()
            else:
                process.end(127)

        end.on_data, end.on_close, process.on_signal = hear, ended, ended

    def control(self, popen: Popen) -> None:
        """Start NVIDIA's control program: `-d` starts a daemon, else it passes on what it reads."""
        process, machine = popen.process, self._machine
        pipe, disk = process.environment["CUDA_MPS_PIPE_DIRECTORY"], machine.disk  # type: ignore[attr-defined]
        mode = machine.mps_mode  # type: ignore[attr-defined]
        if popen.args[1:] == ["-d"]:
            if mode == "hangs":
                return
            if mode != "refuses":
                machine.later(0.05, self._daemon, pipe, process.environment, mode)
            machine.later(0.05, process.end, 1 if mode == "refuses" else 0)
            return
        end = process.files[process.streams["stdin"].fileno()]
        daemon = self.daemons.get(pipe)

        def quits(data: bytes) -> None:
            if daemon is not None and mode != "deaf":
                machine.later(0.02, daemon.end, 0)

        end.on_data = quits
        end.on_close = lambda: machine.later(0.02, process.end, 0)
        process.on_signal = lambda number: process.end(-number)
        assert disk is not None

    def _daemon(self, pipe: str, environment: dict[str, str], mode: str) -> None:
        machine = self._machine
        daemon = Process(machine, "mps-daemon", dict(environment), None, "nvidia-cuda-mps")
        daemon.on_signal = lambda number: None if mode == "deaf" else daemon.end(-number)
        self.daemons[pipe] = daemon
        folder = machine.disk.find(pipe)  # type: ignore[attr-defined]
        if folder is None:
            daemon.end(1)
        elif mode != "mute":
            machine.disk.make(f"{pipe}/nvidia-cuda-mps-control.pid", f"{daemon.pid}\n".encode())  # type: ignore[attr-defined]


class _Job:
    def __init__(self, jobs: Jobs, reaper: Process, environment: dict[str, str], popen: Popen) -> None:
        self._jobs, self._reaper, self._machine = jobs, reaper, reaper.machine
        key, attempt = environment["HESHARE_JOB"], int(environment["HESHARE_ATTEMPT"])
        self.plan = jobs.plans[key]
        self.cards = [jobs._cards[uuid] for uuid in environment["CUDA_VISIBLE_DEVICES"].split(",")]
        self.run = JobRun(
            key, attempt, environment["FOLDER"], tuple([card.uuid for card in self.cards]), self._machine.now
        )
        jobs.starting(self.run)
        jobs.runs.append(self.run)
        self._output = popen.output
        self._kills_at: float | None = None
        self.process = Process(self._machine, "job", environment, reaper)
        self.process.on_signal = self._signal
        self.process.on_end.append(self._ended)
        self._machine.powered(starts=True)
        self._machine.later(LOADS_S, self._draw)
        self.daemon = jobs.daemons.get(environment.get("CUDA_MPS_PIPE_DIRECTORY", ""))
        if "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in environment and (self.daemon is None or not self.daemon.alive):
            self._machine.later(0.05, self._end, 1)
        elif self.daemon is not None:
            self.daemon.on_end.append(lambda: self._machine.later(0.3, self._end, 1))
        code = self.plan.codes[attempt - 1] if attempt <= len(self.plan.codes) else 0
        self._machine.later(self.plan.duration_s, self._end, code)

    def _draw(self) -> None:
        for card in self.cards if self.process.alive else ():
            card.settle()
            card.jobs[self.process.pid] = self.plan.power_w
        self._machine.powered()

    def request(self, data: bytes) -> None:
        for letter in data:
            if letter == ord("t"):
                self.process.signal(signal.SIGTERM)
            elif letter == ord("k"):
                self._end(-int(signal.SIGKILL))

    def orphan(self) -> None:
        """The executor has gone: SIGTERM, and SIGKILL soon after."""
        if self._kills_at is None and self.process.alive:
            self._kills_at = self._machine.now + 2.0
            self.process.signal(signal.SIGTERM)
            self._machine.later(2.0, self._end, -int(signal.SIGKILL))

    def _signal(self, number: int) -> None:
        if not self.plan.deaf:
            self._machine.later(0.05, self._end, -int(number))

    def _end(self, code: int) -> None:
        if self.process.alive:
            self.process.end(1 if code == 0 and any(card.lost for card in self.cards) else code)

    def _ended(self) -> None:
        for card in self.cards:
            card.settle()
            card.jobs.pop(self.process.pid, None)
        self._machine.powered()
        self.run.ended_s, self.run.code = self._machine.now, self.process.returncode
        if self._output is not None:
            self._output.data += self.plan.output
        code = self.process.returncode or 0
        self._machine.later(0.005, self._reaper.end, code)
