"""The run of a drill: a file of jobs that leave a line when they have done their work, and the count of both."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.run_entries import journal_lines

from heshare.shared.errors import InputError

JOBS = 10
_DONE = "done.txt"


@dataclass(frozen=True)
class RunFolder:
    folder: Path

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def file(self) -> Path:
        return self.folder / "jobs.yaml"

    def write(self, rng: np.random.Generator, *, retries: int = 0, longest_s: float = 0.8) -> None:
        """Write jobs that arrive within two seconds, take up to `longest_s`, and then write their name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = ["jobs:"]
        for index in range(JOBS):
            wait_s, arrival_s = 0.05 + longest_s * float(rng.random()), 2.0 * float(rng.random()) * (index > 3)
            lines += [
                f"  - name: job{index}",
                f'    command: [sh, -c, "sleep {wait_s:.3f} && echo job{index} >> {self.folder / _DONE}"]',
                "    like: resnet50:8",
                "    iterations: 100",
                f"    retries: {retries}",
                f"    arrival_s: {arrival_s:.3f}",
            ]
        self.file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def entries(self) -> list[dict[str, Any]]:
        """Return the journal as far as it is; nothing before it begins."""
        try:
            return list(journal_lines(self.run))
        except (FileNotFoundError, InputError):
            return []

    def words(self, *options: str) -> list[str]:
        """Return the words of the command that begins the run with these options, or resumes it."""
        if self.entries():
            return ["jobs", "run", "--resume", str(self.run)]
        return ["jobs", "run", str(self.file), "--devices", "nvml", "--out", str(self.run), *options]

    def counts(self) -> tuple[int, int, int]:
        """Return how many jobs were lost, counted twice, and did their work twice, in a run that is over."""
        ended = [entry["end"] for entry in self.entries() if "end" in entry]
        completed = Counter(end["job"] for end in ended if end["outcome"] == "completed")
        done = self.folder / _DONE
        worked = Counter(done.read_text("utf-8").split() if done.exists() else [])
        names = [f"job{index}" for index in range(JOBS)]
        lost = sum(not completed[name] or completed[name] > worked[name] for name in names)
        return lost, sum(completed[name] > 1 for name in names), sum(worked[name] > 1 for name in names)
