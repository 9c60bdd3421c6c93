"""Limit of a job's output: its beginning and its end are kept, and a line between them says how much was left out."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heshare.ops.private_files import open_private
from heshare.shared.errors import InputError

MIB = 2**20
LOOK_S = 0.2
"""Time between two looks at the outputs, s: an output may exceed its limit by what its job writes meanwhile."""
_TAIL_BYTES = MIB


@dataclass(slots=True)
class _Output:
    path: Path
    limit_mib: int
    left_out: int = 0
    line: bytes = b""

    def look(self) -> None:
        """Cut the file if it exceeds the limit: to the half of it, this line, and the last of what was there."""
        limit = self.limit_mib * MIB
        # Without its file there is nothing to cut; and no fault of a file may end the watch over the others.
        with suppress(OSError, InputError):
            if self.path.stat().st_size <= limit:
                return
            descriptor = open_private(self.path, os.O_RDWR | os.O_APPEND)
            try:
                size, head = os.fstat(descriptor).st_size, limit // 2
                tail = os.pread(descriptor, min(_TAIL_BYTES, limit // 4), size - min(_TAIL_BYTES, limit // 4))
                tail = tail[tail.find(b"\n") + 1 :]
                os.ftruncate(descriptor, head)
                self.left_out += size - head - len(self.line) - len(tail)
                self.line = (
                    f"\n[heshare: {self.left_out / MIB:.1f} MiB of the output left out here: "
                    f"it exceeded output_mib, {self.limit_mib} MiB]\n"
                ).encode()
                os.write(descriptor, self.line + tail)
            finally:
                os.close(descriptor)


class OutputLimiter:
    """A thread that keeps the outputs of running jobs within their limits.

    Jobs write to their files directly, with `O_APPEND`, so that nothing can hold them up: a pipe with a reader could,
    and a limit of the system on the size of files (RLIMIT_FSIZE) would hold for a job's checkpoints as well.
    """

    def __init__(self) -> None:
        self._outputs: list[_Output] = []
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="output-limiter", daemon=True)
        self._thread.start()

    def add(self, path: Path, limit_mib: int) -> Callable[[], None]:
        """Watch an output from now on; return the function that ends this, with a last look at it."""
        output = _Output(path, limit_mib)

        def remove() -> None:
            with self._changed:
                if output in self._outputs:
                    self._outputs.remove(output)
                output.look()

        with self._changed:
            self._outputs.append(output)
            self._changed.notify()
        return remove

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                for output in self._outputs:
                    output.look()
                self._changed.wait(LOOK_S if self._outputs else None)
