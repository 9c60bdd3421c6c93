"""Recording of kernel traces: `heshare trace-kernels --device nvml:0 --out data/profiles/measured`.

Each workload is traced alone and appended whole; workloads that the table has are skipped, so an interrupted recording
continues where it stopped. `heshare profile` calls it after its visits.
"""

import json
import os
import select
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic

from heshare.lab.systems.fikit import kernel_table
from heshare.lab.systems.fikit.kernel_table import KernelRow
from heshare.ops.open_device import opened
from heshare.ops.recording import kernel_events
from heshare.ops.workers.worker_process import SpawnedWorker, spawn
from heshare.shared.errors import DeviceError
from heshare.shared.processes import child_environment, exit_text
from heshare.world.catalogue import model, paper_models
from heshare.world.workload import Workload

TRACER = (sys.executable, "-m", "heshare.ops.worker_program.kernel_profiler")
"""The command that traces models of Table IV."""
BATCH_SIZES = (1, 8)
"""Inference batch sizes that are traced by default."""


class Tracer:
    """One process that traces workload after workload, and is no MPS client.

    A process for each workload would spend ten seconds on imports and libraries for three of tracing.

    Args:
        gpu: the GPU's name in `data/gpus.csv`.
        gpu_uuid: the GPU's UUID from NVML.
        repeats: iterations to trace.
        command: the tracing command.
        timeout_s: longest time of a workload, s.

    Raises:
        DeviceError: the process does not start.
    """

    def __init__(
        self, gpu: str, *, gpu_uuid: str, repeats: int = 5, command: Sequence[str] = TRACER, timeout_s: float = 120.0
    ) -> None:
        self._gpu, self._repeats, self._timeout_s = gpu, repeats, timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="heshare-tracer-")
        self._buffer = b""
        # The whole GPU under its UUID, so no MPS client; and nothing is downloaded.
        environment = child_environment(CUDA_VISIBLE_DEVICES=gpu_uuid, HF_HUB_OFFLINE="1")
        try:
            self._tracer: SpawnedWorker | None = spawn(command, environment, Path(self._folder.name) / "log")
        except OSError as error:
            self._folder.cleanup()
            raise DeviceError(f"The tracer does not start: {error.strerror}. Check the command.") from error

    def __call__(self, workload: Workload) -> tuple[KernelRow, ...]:
        """Trace one workload alone; return its rows.

        Raises:
            DeviceError: it failed or took too long; the message has its last line.
            InputError: the iterations do not launch the same kernels.
        """
        with tempfile.TemporaryDirectory(prefix="heshare-trace-") as folder:
            failure = self._request(workload, folder)
            if failure:
                raise DeviceError(f"The trace of {workload} failed: {failure}")
            traces = list(map(kernel_events.parse_trace, sorted(Path(folder).glob("iteration-*.json"))))
        return kernel_events.summarise(traces, workload, self._gpu)

    def close(self) -> None:
        """End the process. May be repeated."""
        if self._tracer is not None:
            self._tracer.discard()
            self._tracer = None
            self._folder.cleanup()

    def _request(self, workload: Workload, folder: str) -> str:
        assert self._tracer is not None
        request: dict[str, object] = {"model": workload.model, "batch_size": workload.batch_size}
        request |= {"precision": workload.precision, "repeats": self._repeats, "out": folder}
        self._tracer.send(json.dumps(request).encode() + b"\n")
        line = self._read_line(self._tracer)
        if line is None:
            return f"it took more than {self._timeout_s:g} s and was ended"
        if not line:
            log = self._tracer.log.read_text("utf-8", errors="replace").strip()
            return log.splitlines()[-1] if log else f"the tracer has ended, {exit_text(self._tracer.process.wait())}"
        return str(json.loads(line)["failure"])

    def _read_line(self, tracer: SpawnedWorker) -> bytes | None:
        """Return a reply; nothing when the process has ended; None when it took too long, and was killed."""
        until_s = monotonic() + self._timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([tracer.pipe], [], [], max(0.0, until_s - monotonic()))
            if not ready:
                tracer.process.kill()
                return None
            chunk = os.read(tracer.pipe, 65536)
            if not chunk:
                return b""
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def record(
    workloads: Iterable[Workload],
    gpu: str,
    path: Path,
    *,
    gpu_uuid: str,
    repeats: int = 5,
    command: Sequence[str] = TRACER,
) -> Path:
    """Trace workloads into a table, one after the other; those that the table has already are skipped.

    Raises:
        DeviceError: a trace failed; earlier traces stay in the table.
        InputError: an existing table breaks the schema, or iterations do not launch the same kernels.
    """
    rows = list(kernel_table.read(path)) if path.exists() else []
    recorded = {row.setting for row in rows}
    missing = [task for task in workloads if (gpu, task.model, task.batch_size, task.precision) not in recorded]
    if not missing:
        return path
    with closing(Tracer(gpu, gpu_uuid=gpu_uuid, repeats=repeats, command=command, timeout_s=600.0)) as trace:
        for workload in missing:
            rows += trace(workload)
            kernel_table.write(rows, path)
            kernel_events.update_manifest(path)
    return path


def record_device(
    device: str,
    out: str | Path,
    *,
    model_names: Sequence[str] = (),
    batch_sizes: Sequence[int] = BATCH_SIZES,
    repeats: int = 5,
) -> Path:
    """Trace models of Table IV (all unless named) on a live GPU into `out/<gpu>/kernels.csv`; return the table's path.

    Raises:
        InputError: an unknown model, or as `record`.
        DeviceError: the device is not a live GPU, or as `record`.
    """
    names = [model(name).name for name in model_names or paper_models()]
    workloads = [Workload(name, size) for name in names for size in batch_sizes]
    with opened(device) as live:
        gpu, uuid = live.gpu.name, getattr(live, "uuid", None)
    if not isinstance(uuid, str):
        raise DeviceError(f"{device} runs no kernels that could be traced. Name a live GPU, such as nvml:0.")
    return record(workloads, gpu, Path(out) / gpu / kernel_table.NAME, gpu_uuid=uuid, repeats=repeats)
