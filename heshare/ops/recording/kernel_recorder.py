"""Recording of kernel traces: `heshare profile --kernels only --device nvml:0 --out data/profiles/measured`.

Each workload is traced alone; workloads that are already in the table are skipped, so an interrupted recording can be
continued. Without `--kernels` the traces follow the visits of a recording.
"""

import hashlib
import json
import math
import os
import select
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from time import monotonic
from typing import Any

from heshare.lab.systems.fikit import kernel_table
from heshare.lab.systems.fikit.kernel_table import NAME_LENGTH, KernelRow
from heshare.ops.open_device import opened
from heshare.ops.worker_program.kernel_profiler import ON_GPU
from heshare.ops.workers.worker_process import SpawnedWorker, spawn
from heshare.profiles import manifest
from heshare.shared import files
from heshare.shared.errors import DeviceError, InputError, require
from heshare.shared.processes import child_environment, exit_text
from heshare.world.workload import Workload

TRACER = (sys.executable, "-m", "heshare.ops.worker_program.kernel_profiler")
"""The command that traces models of Table IV."""
BATCH_SIZES = (1, 8)
"""Inference batch sizes that are traced by default."""


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """One kernel (or copy) of one iteration, as the profiler reports it.

    Attributes:
        kernel: its name, of at most `NAME_LENGTH` characters.
        grid: blocks of the launch, such as `80x1x1`; empty for a copy.
        block: threads of a block, such as `256x1x1`; empty for a copy.
        start_us: its begin, us on the profiler's clock.
        duration_us: its duration, us.
    """

    kernel: str
    grid: str
    block: str
    start_us: float
    duration_us: float


def parse_trace(path: str | Path) -> tuple[KernelEvent, ...]:
    """Return the kernels and copies of a Chrome trace of PyTorch's profiler, sorted by their start.

    Raises:
        InputError: no JSON, no Chrome trace, an event without a time, or no event of a GPU.
    """
    path = Path(path)
    try:
        entries = json.loads(path.read_text("utf-8"))["traceEvents"]
        # "X" marks complete events, with a start and a duration.
        events = [_event(entry) for entry in entries if entry.get("cat") in ON_GPU and entry.get("ph") == "X"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"no trace ({type(error).__name__}: {error})",
            "a Chrome trace with traceEvents, each kernel with name, ts and dur",
            "Trace the workload again.",
            file=path,
        ) from None
    if not events:
        raise InputError("no kernels", "work on a GPU", "Trace on a machine with an NVIDIA GPU.", file=path)
    return tuple(sorted(events, key=lambda event: event.start_us))


def summarise(traces: Sequence[Sequence[KernelEvent]], workload: Workload, gpu: str) -> tuple[KernelRow, ...]:
    """Return the table's rows of one workload from several iterations, each a sequence of events.

    Iterations must launch the same kernels in the same order, since the repeats of a position are averaged. A minority
    that differs is left out and not counted in `repeats`.

    Raises:
        InputError: no iterations, or no kernel sequence of more than half of them.
    """
    shapes = [tuple((event.kernel, event.grid, event.block) for event in trace) for trace in traces]
    common = max(shapes, key=shapes.count, default=())
    equal = [trace for trace, shape in zip(traces, shapes, strict=True) if shape == common]
    found = f"{len(equal)} of {len(traces)} iterations of {workload} with the same kernels in the same order"
    action = "Trace it again with more repeats, after a longer warm-up."
    require("kernel", found, bool(common) and 2 * len(equal) > len(traces), "more than half of them", action)
    rows = []
    for position, (kernel, grid, block) in enumerate(common):
        durations_us = [trace[position].duration_us for trace in equal]
        gaps_us = [_gap_us(trace, position) for trace in equal]
        setting = (gpu, "measured", workload.model, workload.batch_size, workload.precision)
        launch = (position, len(common), kernel, grid, block)
        rows.append(KernelRow(*setting, *launch, *_mean_and_std(durations_us), *_mean_and_std(gaps_us), len(equal)))
    return tuple(rows)


def _event(entry: dict[str, Any]) -> KernelEvent:
    name, launch = str(entry["name"]), entry.get("args", {})
    start_us, duration_us = float(entry["ts"]), float(entry["dur"])
    if not (math.isfinite(start_us) and math.isfinite(duration_us) and duration_us >= 0):
        raise ValueError(f"{name!r} from {start_us} us for {duration_us} us")
    return KernelEvent(_shorten(name), _size(launch.get("grid")), _size(launch.get("block")), start_us, duration_us)


def _shorten(name: str) -> str:
    name = " ".join(name.split())
    if len(name) <= NAME_LENGTH:
        return name
    return f"{name[: NAME_LENGTH - 9]}#{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _size(blocks: Sequence[int] | None) -> str:
    return "x".join(str(int(extent)) for extent in blocks) if blocks else ""


def _gap_us(trace: Sequence[KernelEvent], position: int) -> float:
    if position + 1 == len(trace):
        return 0.0
    return trace[position + 1].start_us - trace[position].start_us - trace[position].duration_us


def _mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    return round(fmean(values), 3), round(stdev(values), 3) if len(values) > 1 else 0.0


def manifest_entry(path: Path) -> dict[str, Any]:
    """Return a manifest's entry for a table of kernels; empty if there is no table."""
    if not path.is_file():
        return {}
    rows = kernel_table.read(path)
    return {
        "table": path.name,
        "sha256": files.sha256(path),
        "rows": len(rows),
        "workloads": len({row.setting for row in rows}),
    }


def update_manifest(path: str | Path) -> None:
    """Update the entry of a table of kernels in the manifest of its folder, if there is one."""
    path = Path(path)
    manifest_path = path.with_name(manifest.NAME)
    if path.name == kernel_table.NAME and manifest_path.is_file():
        manifest.write_kernels(manifest_path, manifest_entry(path))


class Tracer:
    """A process that traces workloads one after the other, without MPS.

    A separate process for each workload would spend ten seconds on imports for three of tracing. `timeout_s` is the
    time limit of a workload.
    """

    def __init__(
        self, gpu: str, *, gpu_uuid: str, repeats: int = 5, command: Sequence[str] = TRACER, timeout_s: float = 120.0
    ) -> None:
        self._gpu, self._repeats, self._timeout_s = gpu, repeats, timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="heshare-tracer-")
        self._buffer = b""
        # The whole GPU by its UUID, without MPS; nothing may be downloaded.
        environment = child_environment(CUDA_VISIBLE_DEVICES=gpu_uuid, HF_HUB_OFFLINE="1")
        try:
            self._tracer: SpawnedWorker | None = spawn(command, environment, Path(self._folder.name) / "log")
        except OSError as error:
            self._folder.cleanup()
            raise DeviceError(f"The tracer does not start: {error.strerror}. Check the command.") from error

    def __call__(self, workload: Workload) -> tuple[KernelRow, ...]:
        """Trace one workload alone; return its rows."""
        with tempfile.TemporaryDirectory(prefix="heshare-trace-") as folder:
            failure = self._request(workload, folder)
            if failure:
                raise DeviceError(f"The trace of {workload} failed: {failure}")
            traces = list(map(parse_trace, sorted(Path(folder).glob("iteration-*.json"))))
        return summarise(traces, workload, self._gpu)

    def close(self) -> None:
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
        """Return a reply; empty if the process has ended; None if it exceeded the time limit and was killed."""
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
    """Trace workloads into a table, one after the other; those that are already in the table are skipped.

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
            update_manifest(path)
    return path


def record_device(
    device: str,
    out: str | Path,
    *,
    model_names: Sequence[str],
    repeats: int = 5,
) -> Path:
    """Trace models on a live GPU into `out/<gpu>/kernels.csv`; return the table's path.

    Raises:
        InputError: as `record`.
        DeviceError: the device is not a live GPU, or as `record`.
    """
    workloads = [Workload(name, size) for name in model_names for size in BATCH_SIZES]
    with opened(device) as live:
        gpu, uuid = live.gpu.name, live.uuid
    if not uuid:
        raise DeviceError(f"{device} runs no kernels that could be traced. Name a live GPU, such as nvml:0.")
    return record(workloads, gpu, Path(out) / gpu / kernel_table.NAME, gpu_uuid=uuid, repeats=repeats)
