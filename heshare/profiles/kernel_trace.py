"""Recording kernel traces: `python -m heshare.profiles.kernel_trace --device nvml:0 --out data/profiles/measured`.

Each workload is traced alone and appended whole; workloads that the table has are passed over, so an interrupted
recording goes on where it stopped. `heshare profile` traces as well: with a `Tracer`, one process for all workloads.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from heshare.devices.device import Device
from heshare.devices.runner.trace import SERVE
from heshare.errors import DeviceError, HeShareError
from heshare.files import PACKAGE
from heshare.profiles import kernels, manifest
from heshare.profiles.kernels import KernelRow
from heshare.world.catalogue import models
from heshare.world.workload import Workload

TRACER = (sys.executable, "-m", "heshare.devices.runner.trace")
"""The command that traces a model of Table IV."""

BATCH_SIZES = (1, 8)
"""Inference batch sizes that are traced unless others are asked for."""


def kernel_trace(
    workload: Workload,
    gpu: str,
    *,
    gpu_uuid: str,
    repeats: int = 5,
    command: Sequence[str] = TRACER,
    timeout_s: float = 600.0,
) -> tuple[KernelRow, ...]:
    """Trace one workload alone on a GPU.

    Args:
        workload: what to run.
        gpu: the GPU's name in `data/gpus.csv`.
        gpu_uuid: the GPU, as NVML names it.
        repeats: iterations to trace.
        command: what traces; the workload's arguments follow.
        timeout_s: how long the process may take, s.

    Raises:
        DeviceError: the process failed or took too long; the message has its last line.
        InputError: the iterations do not launch the same kernels.
    """
    with tempfile.TemporaryDirectory(prefix="heshare-trace-") as folder:
        _run(workload, [*command, *_arguments(workload, repeats, folder)], gpu_uuid, timeout_s)
        traces = [kernels.parse_trace(one) for one in sorted(Path(folder).glob("iteration-*.json"))]
    return kernels.summarise(traces, workload, gpu)


class Tracer:
    """One process that traces workload after workload; it imports PyTorch while something else is measured.

    It has no CUDA context before the first workload, and is no MPS client. A process for each workload would spend ten
    seconds on imports and libraries for three of tracing.

    Args:
        gpu: the GPU's name in `data/gpus.csv`.
        gpu_uuid: the GPU, as NVML names it.
        repeats: iterations to trace.
        command: what traces, with `--serve`.
        timeout_s: how long a workload may take, s.

    Raises:
        DeviceError: the process does not start.
    """

    def __init__(
        self, gpu: str, *, gpu_uuid: str, repeats: int = 5, command: Sequence[str] = TRACER, timeout_s: float = 120.0
    ) -> None:
        self._gpu, self._repeats, self._timeout_s = gpu, repeats, timeout_s
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 (closed with the tracer)
        self._rest = b""
        try:
            self._process = subprocess.Popen(
                [*command, SERVE],
                env=_environment(gpu_uuid),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            raise DeviceError(f"The tracer does not start: {error.strerror}. Check the command.") from error

    def __call__(self, workload: Workload) -> tuple[KernelRow, ...]:
        """Trace one workload alone.

        Raises:
            DeviceError: it failed or took too long; the message has its last line.
            InputError: the iterations do not launch the same kernels.
        """
        with tempfile.TemporaryDirectory(prefix="heshare-trace-") as folder:
            failure = self._ask(_arguments(workload, self._repeats, folder))
            if failure:
                raise DeviceError(f"The trace of {workload} failed: {failure}")
            traces = [kernels.parse_trace(one) for one in sorted(Path(folder).glob("iteration-*.json"))]
        return kernels.summarise(traces, workload, self._gpu)

    def close(self) -> None:
        """End the process. May be repeated."""
        if self._log.closed:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _ask(self, arguments: Sequence[str]) -> str:
        """What went wrong, or nothing."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(list(arguments)).encode() + b"\n")
        line = self._answer()
        if line is None:
            return f"it took more than {self._timeout_s:g} s and was ended"
        if not line:
            self._log.seek(0)
            said = [one for one in self._log.read().decode(errors="replace").splitlines() if one.strip()]
            return said[-1] if said else f"the tracer has ended, exit code {self._process.wait()}"
        return str(json.loads(line)["failure"])

    def _answer(self) -> bytes | None:
        """A line; nothing when the process has ended; None when it took too long, and was killed."""
        assert self._process.stdout is not None
        until_s = monotonic() + self._timeout_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until_s - monotonic()))
            if not ready:
                self._process.kill()
                return None
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                return b""
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def tracer(device: Device, *, command: Sequence[str] = TRACER) -> Tracer | None:
    """What traces kernels on a device; None for one that runs none, emulated or replayed.

    Raises:
        DeviceError: the process does not start.
    """
    uuid = getattr(device, "uuid", None)
    if device.provenance != "measured" or not isinstance(uuid, str):
        return None
    return Tracer(device.gpu.name, gpu_uuid=uuid, command=command)


def record(
    workloads: Iterable[Workload],
    gpu: str,
    path: str | Path,
    *,
    gpu_uuid: str,
    repeats: int = 5,
    command: Sequence[str] = TRACER,
) -> Path:
    """Trace workloads into a table, one after the other; those that the table has already are passed over.

    Raises:
        DeviceError: a trace failed; what was traced before stays in the table.
        InputError: the table that is there breaks the schema, or iterations do not launch the same kernels.
    """
    path = Path(path)
    rows = list(kernels.read(path)) if path.exists() else []
    there = {row.setting for row in rows}
    for one in workloads:
        if (gpu, one.model, one.batch_size, one.precision) not in there:
            rows += kernel_trace(one, gpu, gpu_uuid=gpu_uuid, repeats=repeats, command=command)
            kernels.write(rows, path)
            manifest.note_kernels(path)
    return path


def main(arguments: Sequence[str]) -> int:
    """Trace every model of Table IV on a live GPU; returns the exit code."""
    parser = argparse.ArgumentParser(prog="heshare.profiles.kernel_trace", description="Record kernel traces.")
    parser.add_argument("--device", default="nvml:0", help="a live GPU, such as nvml:0")
    parser.add_argument("--out", type=Path, required=True, help="folder of profiles: OUT/<gpu>/kernels.csv")
    parser.add_argument("--repeats", type=int, default=5, help="iterations to trace")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=BATCH_SIZES, help="samples an iteration")
    parser.add_argument("--models", nargs="+", default=list(models()), choices=list(models()), metavar="MODEL")
    asked = parser.parse_args(arguments)
    try:
        gpu, uuid = _card(asked.device)
        workloads = [Workload(model, size) for model in asked.models for size in asked.batch_sizes]
        path = record(workloads, gpu, asked.out / gpu / "kernels.csv", gpu_uuid=uuid, repeats=asked.repeats)
    except HeShareError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"Written: {path}\n")
    return 0


def _card(device: str) -> tuple[str, str]:
    """The catalogue's name and the UUID of a live GPU."""
    from heshare.devices.open import opened

    with opened(device) as card:
        uuid = getattr(card, "uuid", None)
        if not isinstance(uuid, str):
            raise DeviceError(f"{device} runs no kernels that could be traced. Name a live GPU, such as nvml:0.")
        return card.gpu.name, uuid


def _arguments(workload: Workload, repeats: int, folder: str) -> list[str]:
    options = {
        "model": workload.model,
        "batch-size": workload.batch_size,
        "precision": workload.precision,
        "repeats": repeats,
        "out": folder,
    }
    return [part for key, value in options.items() for part in (f"--{key}", str(value))]


def _environment(gpu_uuid: str) -> dict[str, str]:
    """The card in the order and under the name of NVML, whole: no MPS client, and nothing is downloaded."""
    path = os.pathsep.join(part for part in (str(PACKAGE.parent), os.environ.get("PYTHONPATH")) if part)
    return {**os.environ, "CUDA_VISIBLE_DEVICES": gpu_uuid, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}


def _run(workload: Workload, command: list[str], gpu_uuid: str, timeout_s: float) -> None:
    environment = _environment(gpu_uuid)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise DeviceError(f"The trace of {workload} took more than {timeout_s:g} s and was ended.") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise DeviceError(f"The trace of {workload} failed: {said[-1]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
