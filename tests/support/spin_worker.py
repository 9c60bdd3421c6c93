"""A worker that only lets time pass, for tests of what starts workers: `python -m support.spin_worker --ms 2 ...`.

It is the real worker process except for the model: same messages, no PyTorch, no GPU. The model `spin:5` takes 5 ms an
iteration; any other model, of Table IV or not, takes `--ms`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from heshare.ops.worker_program.worker_main import main


class Spin:
    """Iterations of a set time.

    Args:
        time_s: seconds an iteration.
        fail_after: raise in the iteration after so many; None never does.
        error: what to raise then: `error`, `memory` (as PyTorch does), or `killed` (ends without a message).
    """

    lag = 0

    def __init__(self, time_s: float, fail_after: int | None = None, error: str = "error") -> None:
        self.title = f"spin of {1e3 * time_s:g} ms"
        self._time_s = time_s
        self._left = fail_after
        self._error = error

    def step(self) -> None:
        if self._left is not None:
            if self._left == 0:
                self._fail()
            self._left -= 1
        time.sleep(self._time_s)

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _fail(self) -> None:
        if self._error == "killed":
            signal.raise_signal(signal.SIGKILL)
        if self._error == "memory":
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        raise RuntimeError("a kernel failed")


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's."""


def spin(arguments: Sequence[str]) -> int:
    """Run one worker that spins; the options of its own come first, then the worker's."""
    parser = argparse.ArgumentParser(
        prog="support.spin_worker", description="A worker that lets time pass.", allow_abbrev=False
    )
    parser.add_argument("--ms", type=float, default=2.0, help="milliseconds an iteration")
    parser.add_argument("--fail-after", type=int, default=None, help="iterations until it fails, warm-up included")
    parser.add_argument("--error", choices=("error", "memory", "killed"), default="error", help="how it fails")
    parser.add_argument("--load-s", type=float, default=0.0, help="seconds that loading takes")
    own, rest = parser.parse_known_args(arguments)

    def make(model: str, batch_size: int, precision: str) -> Spin:
        time.sleep(own.load_s)
        kind, _, ms = model.partition(":")
        return Spin(float(ms if kind == "spin" else own.ms) / 1e3, own.fail_after, own.error)

    return main(rest, make, prepare=lambda: None)


if __name__ == "__main__":
    sys.exit(spin(sys.argv[1:]))
