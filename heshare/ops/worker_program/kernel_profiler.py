"""Process of `heshare.ops.recording.kernel_recorder.Tracer`: kernel traces of models by PyTorch's profiler.

Each line of its stdin is a request, a JSON object of `trace`'s arguments, with one reply in the report pipe.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from heshare.ops.worker_program.inference_program import Inference, warm_up
from heshare.ops.worker_program.networks import library, preload
from heshare.shared.errors import HeShareError

PAUSE_S = 0.05
"""Pause between the two iterations of a profiling session, s: longer than gaps between kernels of one iteration."""

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
"""The profiler's categories of events that occupy the GPU."""


def trace(model: str, batch_size: int, precision: str, repeats: int, out: Path) -> None:
    """Profile some iterations after a warm-up into the files `out/iteration-N.json` (Chrome's trace format).

    Only GPU activity is profiled: profiling the host would slow it and lengthen the gaps between kernels. The first
    session, which initialises the profiler, is not used, nor is the first iteration of each.
    """
    program = Inference(model, batch_size, precision)
    profiler = library("torch.profiler")
    warm_up(program, iterations=5, least_s=1.0)
    for number in range(repeats + 1):
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as session:
            for last in (False, True):
                program.step()
                program.settle()
                time.sleep(0.0 if last else PAUSE_S)
        if number:
            path = out / f"iteration-{number}.json"
            session.export_chrome_trace(str(path))
            keep_last(path)
    program.close()


def keep_last(path: Path) -> None:
    """Remove events before the pause from a trace: PyTorch's profiler can lose kernels at the start of a session."""
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    ran = sorted((event for event in events if event.get("cat") in ON_GPU), key=lambda event: float(event["ts"]))
    ends = [float(event["ts"]) + float(event["dur"]) for event in ran]
    late = [place for place in range(1, len(ran)) if float(ran[place]["ts"]) - max(ends[:place]) > 1e6 * PAUSE_S / 2]
    if len(late) != 1:
        raise RuntimeError(f"{len(late) + 1} iterations in a trace of 2: the profiler lost the rest. Trace it again.")
    path.write_text(json.dumps({"traceEvents": ran[late[0] :]}), encoding="utf-8")


def main(arguments: Sequence[str], run: Callable[..., None] = trace, prepare: Callable[[], None] = preload) -> None:
    """Reply to each request with `{"failure": ""}`, or with the text of the error."""
    parser = argparse.ArgumentParser(prog="heshare.ops.worker_program.kernel_profiler", description="Kernel traces.")
    parser.add_argument("--report-fd", type=int, required=True, help="file descriptor for the replies")
    prepare()
    with os.fdopen(parser.parse_args(arguments).report_fd, "w", encoding="utf-8") as replies:
        for line in sys.stdin:
            request, failure = json.loads(line), ""
            try:
                run(**{**request, "out": Path(request["out"])})
            except (HeShareError, RuntimeError, OSError) as error:
                failure = " ".join(f"{error}".split()) or type(error).__name__
            replies.write(json.dumps({"failure": failure}) + "\n")
            replies.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
