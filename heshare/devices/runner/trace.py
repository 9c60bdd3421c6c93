"""Kernel traces: `python -m heshare.devices.runner.trace --model resnet50 --batch-size 8 --out FOLDER`.

Runs a model of Table IV alone and writes what PyTorch's profiler saw of the GPU, one file an iteration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from heshare.devices.networks import library
from heshare.devices.runner.loop import warm_up
from heshare.devices.runner.program import Inference
from heshare.errors import HeShareError
from heshare.world.workload import PRECISIONS


def trace(model: str, batch_size: int, precision: str, *, device: str, repeats: int, out: Path) -> list[Path]:
    """Profile some iterations after a warm-up; returns the files `OUT/iteration-N.json` (Chrome's trace format).

    Only the GPU's side is profiled: profiling the host would slow it and stretch the gaps between kernels. The first
    profiled iteration starts the profiler up and is thrown away.

    Raises:
        DeviceError: PyTorch is missing, or there is no GPU.
    """
    program = Inference(model, batch_size, precision, device)
    profiler = library("torch.profiler")
    activity = profiler.ProfilerActivity.CUDA if device == "cuda" else profiler.ProfilerActivity.CPU
    warm_up(program, iterations=5, least_s=1.0 if device == "cuda" else 0.0)
    written: list[Path] = []
    for number in range(repeats + 1):
        with profiler.profile(activities=[activity]) as seen:
            program.step()
            program.settle()
        if number:
            written.append(out / f"iteration-{number}.json")
            seen.export_chrome_trace(str(written[-1]))
    return written


def main(arguments: Sequence[str]) -> int:
    """Trace one workload; returns 0, or 1 after a line on the standard error that says what went wrong."""
    parser = argparse.ArgumentParser(prog="heshare.devices.runner.trace", description="Kernels of a workload.")
    parser.add_argument("--model", required=True, help="a name of Table IV")
    parser.add_argument("--batch-size", type=int, required=True, help="inference batch size, samples")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--repeats", type=int, default=5, help="iterations to trace")
    parser.add_argument("--out", type=Path, required=True, help="an existing folder for the traces")
    asked = parser.parse_args(arguments)
    try:
        trace(asked.model, asked.batch_size, asked.precision, device=asked.device, repeats=asked.repeats, out=asked.out)
    except (HeShareError, RuntimeError, OSError) as error:
        sys.stderr.write(" ".join(f"{error}".split()) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
