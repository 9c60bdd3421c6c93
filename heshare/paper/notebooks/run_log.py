"""Lines on stderr at the start and the end of each notebook, with the time left by the last run."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from heshare.shared import files


class RunLog:
    """Prints a line at the start and at the end of each notebook of a run.

    Args:
        names: the notebooks to run.
        jobs: how many run at a time.
        past: JSON file with the seconds of each notebook in the last run; written again at the end of each notebook.
        quiet: print nothing.
    """

    def __init__(self, names: Sequence[str], jobs: int, past: Path, *, quiet: bool = False) -> None:
        self._total, self._jobs, self._past, self._quiet = len(names), jobs, past, quiet
        self._known = _read(past)
        self._waiting = list(names)
        self._since_s: dict[str, float] = {}
        self._done = 0

    def start(self, name: str) -> None:
        """Print that a notebook starts."""
        self._waiting.remove(name)
        self._since_s[name] = time.monotonic()
        self._print(name, "started")

    def end(self, name: str, seconds: float | None, outcome: str) -> None:
        """Print that a notebook has ended, after so many seconds (None: it failed), and how."""
        self._done += 1
        del self._since_s[name]
        if seconds is not None:
            self._known[name] = round(seconds, 1)
            files.write_text(self._past, json.dumps(self._known, indent=1, sort_keys=True) + "\n")
        left_s = self.left_s()
        left = "" if left_s is None or self._done == self._total else f"; about {_rounded(left_s)} left"
        self._print(name, outcome + left)

    def left_s(self) -> float | None:
        """Return the time that is left, s; None if a notebook that has not ended was never timed."""
        open_names = [*self._waiting, *self._since_s]
        if any(name not in self._known for name in open_names):
            return None
        now_s = time.monotonic()
        running_s = [max(0.0, self._known[name] - (now_s - since_s)) for name, since_s in self._since_s.items()]
        waiting_s = sum(self._known[name] for name in self._waiting)
        return max([(waiting_s + sum(running_s)) / self._jobs, *running_s])

    def _print(self, name: str, text: str) -> None:
        if not self._quiet:
            width = len(str(self._total))
            sys.stderr.write(f"[{self._done:{width}}/{self._total}] {name}: {text}\n")
            sys.stderr.flush()


def _read(past: Path) -> dict[str, float]:
    """Return the seconds of each notebook in the last run; none from a file that cannot be read."""
    try:
        known = json.loads(past.read_text(encoding="utf-8"))
        return {str(name): float(seconds) for name, seconds in known.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
