"""Kernel traces: `python -m heshare.gpu.worker_program.kernel_profiler --model resnet50 --batch-size 8 --out FOLDER`.

Runs a model of Table IV alone and writes what PyTorch's profiler saw of the GPU, one file an iteration. With `--serve`
it imports PyTorch and takes one such command line after the other, as JSON lines, from its standard input.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from heshare.errors import HeShareError
from heshare.gpu.worker_program.inference_program import Inference, warm_up
from heshare.gpu.workers.networks import library, preload
from heshare.world.workload import PRECISIONS

PAUSE_S = 0.05
"""Between the two iterations of a profiling session, s: longer than any gap between two kernels of one."""

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
"""The profiler's categories of what occupies the GPU."""

Run = Callable[..., list[Path]]
"""(model, inference batch size, precision, *, device, repeats, out) -> the traces."""


def trace(model: str, batch_size: int, precision: str, *, device: str, repeats: int, out: Path) -> list[Path]:
    """Profile some iterations after a warm-up; returns the files `OUT/iteration-N.json` (Chrome's trace format).

    Only the GPU's side is profiled: profiling the host would slow it and stretch the gaps between kernels. The first
    session starts the profiler up and is thrown away, and so is the first iteration of each.

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
            for last in (False, True):
                program.step()
                program.settle()
                time.sleep(0.0 if last else PAUSE_S)
        if number:
            written.append(out / f"iteration-{number}.json")
            seen.export_chrome_trace(str(written[-1]))
            if device == "cuda":
                keep_last(written[-1])
    program.close()
    return written


def keep_last(path: Path) -> None:
    """Leave only what ran on the GPU after the pause: PyTorch's profiler can lose kernels at the start of a session.

    Raises:
        RuntimeError: nothing ran before the pause or after it.
    """
    said = json.loads(path.read_text("utf-8"))
    ran = sorted((one for one in said["traceEvents"] if one.get("cat") in ON_GPU), key=lambda one: float(one["ts"]))
    ends = [float(one["ts"]) + float(one["dur"]) for one in ran]
    late = [at for at in range(1, len(ran)) if float(ran[at]["ts"]) - max(ends[:at]) > 1e6 * PAUSE_S / 2]
    if len(late) != 1:
        raise RuntimeError(f"{len(late) + 1} iterations in a trace of 2: the profiler lost the rest. Trace it again.")
    path.write_text(json.dumps({"traceEvents": ran[late[0] :]}), encoding="utf-8")


SERVE = "--serve"
"""The option of a tracer that takes command lines from its standard input."""


def main(arguments: Sequence[str], run: Run = trace, prepare: Callable[[], None] = preload) -> int:
    """Trace one workload, or with `--serve` one after the other; returns 0, or 1 after a line that says what was wrong.

    Args:
        arguments: the command line.
        run: what traces; a test's needs no GPU.
        prepare: what a tracer does before it takes its first command line.
    """
    if list(arguments) == [SERVE]:
        return _serve(run, prepare)
    failure = _one(arguments, run)
    if failure:
        sys.stderr.write(failure + "\n")
    return 1 if failure else 0


def _serve(run: Run, prepare: Callable[[], None]) -> int:
    """Answer each command line with `{"failure": ""}` or what went wrong, on what was the standard output.

    What libraries print goes to the standard error, so that it is not taken for an answer.
    """
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        prepare()
        for line in sys.stdin:
            answers.write(json.dumps({"failure": _one(json.loads(line), run)}) + "\n")
            answers.flush()
    return 0


def _one(arguments: Sequence[str], run: Run) -> str:
    """Trace one workload; nothing, or one line that says what went wrong."""
    asked = _parser().parse_args(arguments)
    try:
        run(asked.model, asked.batch_size, asked.precision, device=asked.device, repeats=asked.repeats, out=asked.out)
    except (HeShareError, RuntimeError, OSError) as error:
        return " ".join(f"{error}".split()) or type(error).__name__
    return ""


def _parser() -> argparse.ArgumentParser:
    # An internal program of `Tracer`: Typer would add its import time to each start.
    parser = argparse.ArgumentParser(
        prog="heshare.gpu.worker_program.kernel_profiler", description="Kernels of a workload."
    )
    parser.add_argument("--model", required=True, help="a name of Table IV")
    parser.add_argument("--batch-size", type=int, required=True, help="inference batch size, samples")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--repeats", type=int, default=5, help="iterations to trace")
    parser.add_argument("--out", type=Path, required=True, help="an existing folder for the traces")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
