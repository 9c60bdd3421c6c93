"""The processes of an executor's jobs (a command, or a model of Table IV), and the launcher that starts them."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from heshare.ops.descriptors import ShortageError, inherited_limit, start_error
from heshare.ops.executor.gang import Gang, GangMember, join
from heshare.ops.jobs.job_file import JobSpec
from heshare.ops.mps import MPS, MpsSession
from heshare.ops.private_files import open_private
from heshare.ops.unprivileged_process import start_unprivileged
from heshare.ops.workers import job_reaper
from heshare.ops.workers.job_cgroup import JobCgroup
from heshare.ops.workers.launcher import Launcher, Worker
from heshare.ops.workers.output_limit import OutputLimiter
from heshare.shared.display import printable
from heshare.shared.processes import MARK, exit_text, kill_with
from heshare.world.workload import Workload

_LATE_S = 2.0


class ReapedProcess:
    """A command that was started without privileges, with everything below it.

    `environment` is all of its environment, `output` the descriptor of its output and errors, `memory_mib` the host
    memory that it may use, MiB. `pid` is the process above the command, which ends when nothing runs below it any more.

    Raises:
        OSError, ValueError: it does not start.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        output: int,
        memory_mib: int | None = None,
    ) -> None:
        texts = [*[f"{name}={value}" for name, value in environment.items()], *arguments]
        if any("\0" in text for text in texts):
            raise ValueError("a NUL in an argument or in the environment")
        order = b"".join(os.fsencode(text) + b"\0" for text in [str(len(environment)), *texts])
        marks = {MARK: environment[MARK]} if MARK in environment else {}
        self._process = start_unprivileged(
            [sys.executable, "-I", "-S", job_reaper.__file__, str(inherited_limit())],
            cwd=directory,
            env={**os.environ, **marks},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
        )
        self.pid = self._process.pid
        self._group = JobCgroup(self.pid, memory_mib)
        self._send(b"%10d" % len(order) + order)

    @property
    def returncode(self) -> int | None:
        """The exit code of the command, negative for a signal; None as long as it runs."""
        return self._process.returncode

    @property
    def exceeded(self) -> bool:
        """Whether it was killed because it used more than its host memory."""
        return self._group.exceeded

    def poll(self) -> int | None:
        if self._process.returncode is None and self._process.poll() is not None:
            self._close()
        return self._process.returncode

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM to the command's process group; after `grace_s` SIGKILL to all below; wait for their end."""
        for request, patience_s in ((b"t", grace_s), (b"k", _LATE_S)):
            self._send(request)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                break
        else:
            self._process.kill()
            self._process.wait()
        self._close()

    def _send(self, request: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            view = memoryview(request)
            while view:
                view = view[self._process.stdin.write(view) :]

    def _close(self) -> None:
        self._group.end()
        if self._process.stdin is not None:
            self._process.stdin.close()


TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class AssignedJob:
    """One copy of an entry of `jobs.yaml`: its name in results, which copy, and the attempts before this session."""

    key: str
    spec: JobSpec
    index: int = 0
    attempts: int = 0


class CommandWorker:
    """A `Worker` that runs a command; exit code 0 is success.

    It has no privileges (`start_unprivileged`) and leads a session of its own; whatever it started ends with it
    (`ReapedProcess`). All of its iterations count as done once it has succeeded. `name` is for messages, `grace_s` how
    long it may take to end after SIGTERM, s. `limit_output` is called with `log` once it has started, and returns what
    is called when it has ended.
    """

    ready = True
    time_s = math.nan

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        log: Path,
        iterations: float,
        grace_s: float,
        memory_mib: int | None = None,
        limit_output: Callable[[Path], Callable[[], None]] = lambda log: lambda: None,
    ) -> None:
        self.log = log
        self.exit_code: int | None = None
        self.failure: str | None = None
        self._name, self._iterations, self._grace_s, self._memory_mib = name, iterations, grace_s, memory_mib
        marks = (MARK, "HESHARE_JOB", "HESHARE_ATTEMPT")
        self._marks = [f"{name}={environment[name]}" for name in marks if name in environment]
        try:
            with os.fdopen(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as output:
                self._process = ReapedProcess(
                    arguments,
                    directory=directory,
                    environment=environment,
                    output=output.fileno(),
                    memory_mib=memory_mib,
                )
        except (OSError, ValueError) as error:
            raise start_error(f"{name}: {arguments[0]}", error) from error
        self.pid = self._process.pid
        self._end_limit = limit_output(log)

    @property
    def done(self) -> float:
        """All iterations once it has succeeded, none before: a command does not report its progress."""
        return self._iterations if self.finished else 0.0

    @property
    def finished(self) -> bool:
        return self.exit_code == 0

    def go(self) -> None:
        """Do nothing: a command begins when it is started."""

    def poll(self) -> None:
        if self.exit_code is None and self._process.poll() is not None:
            self._close()

    def stop(self) -> float:
        """Send SIGTERM to its process group, then SIGKILL to all below it; return the iterations done. Repeatable."""
        if self.exit_code is None:
            self._process.stop(self._grace_s)
            self._close()
        return self.done

    def tail(self) -> str:
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                return stream.read().decode(errors="replace")
        except OSError:
            return ""

    def _close(self) -> None:
        self.exit_code = self._process.returncode
        if self.exit_code == -signal.SIGKILL and self._marks:
            kill_with(*self._marks)  # where the process above the command was killed, it has ended nothing
        self._end_limit()
        if self.exit_code != 0:
            lines = self.tail().strip().splitlines()
            last = f": {printable(lines[-1]).strip()[-160:]}" if lines else ""
            why = f"ended, {exit_text(self.exit_code)}{last}"
            if self._process.exceeded:
                why = f"used more than its {self._memory_mib} MiB of host memory, and was killed"
            self.failure = f"{why} (see {self.log})"


class JobLauncher(Launcher):
    """Starts the jobs of a run: commands as processes, workloads of Table IV by another launcher, `models`.

    Without MPS a job has the whole GPU in its turn. Launchers of one run share `attempts`, how many there were at each
    task, since a job may be tried again on another GPU, and `gangs`, the jobs on several GPUs; a start for which the
    system has nothing left (`ShortageError`) is no attempt. `token` marks every process of this run in its environment.
    """

    def __init__(
        self,
        jobs: Mapping[int, AssignedJob],
        mps: MpsSession,
        outputs: Path,
        models: Launcher,
        *,
        attempts: dict[int, int],
        gangs: dict[int, Gang],
        limiter: OutputLimiter,
        token: str,
        grace_s: float,
    ) -> None:
        self._gangs = gangs
        self._jobs, self._mps, self._outputs, self._models = jobs, mps, outputs, models
        self._attempts, self._limiter, self._token, self._grace_s = attempts, limiter, token, grace_s

    def attempt(self, task_id: int) -> int:
        return self._attempts[task_id]

    def start(
        self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None, *, gpu_uuid: str
    ) -> Worker:
        job = self._jobs[task_id]
        mps_pct = mps_pct if self._mps.sharing == MPS else 100
        with self._counted(task_id):
            if not job.spec.command:
                return self._models.start(task_id, workload, mps_pct, iterations, gpu_uuid=gpu_uuid)
            share = self._mps.environment(mps_pct)
            return self._command(task_id, job, share, math.inf if iterations is None else iterations)

    def join(self, task_id: int, gpu_uuid: str) -> Gang | None:
        """Return the gang of a job that is started on a GPU; None for a job on that GPU alone."""
        return join(self._gangs, task_id, self._jobs[task_id].spec.gpus, gpu_uuid)

    def leave(self, task_id: int) -> None:
        """Forget the gang of an attempt that is over on one of its GPUs."""
        self._gangs.pop(task_id, None)

    def start_gang(self, task_id: int, gang: Gang, iterations: float, gpu_uuid: str) -> Worker | None:
        """Return the worker of a GPU of a gang whose memory is free; None as long as the other GPUs are not ready."""
        if gang.may_start(gpu_uuid):
            # A daemon serves one GPU, so it is a client of none.
            alone = {"CUDA_VISIBLE_DEVICES": ",".join(gang.uuids), "CUDA_MPS_PIPE_DIRECTORY": os.devnull}
            with self._counted(task_id):
                gang.worker = self._command(task_id, self._jobs[task_id], alone, iterations)
            return gang.worker
        return None if gang.worker is None or gpu_uuid == gang.uuids[0] else GangMember(gang.worker)

    @contextmanager
    def _counted(self, task_id: int) -> Iterator[None]:
        self._attempts[task_id] += 1
        try:
            yield
        except ShortageError:
            self._attempts[task_id] -= 1
            raise

    def close(self) -> None:
        self._models.close()

    def _command(self, task_id: int, job: AssignedJob, share: Mapping[str, str], iterations: float) -> CommandWorker:
        attempt = self._attempts[task_id]
        own = {"HESHARE_JOB": job.key, "HESHARE_JOB_INDEX": str(job.index), "HESHARE_ATTEMPT": str(attempt)}
        environment = {**os.environ, **dict(job.spec.environment), **share, **own, MARK: self._token}
        return CommandWorker(
            job.key,
            job.spec.command,
            directory=job.spec.directory,
            environment=environment,
            log=self._outputs / f"{job.key}.{attempt}.log",
            iterations=iterations,
            grace_s=self._grace_s,
            memory_mib=job.spec.host_memory_mib,
            limit_output=partial(self._limiter.add, limit_mib=job.spec.output_mib),
        )
