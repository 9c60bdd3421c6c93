"""The first plan and estimate of a new clone, after what `make` compiles once, and the import.

A copy of the package and its data is used as the clone. What is compiled is copied with the times of the sources, which
numba compares; `heshare doctor --compile` makes what is missing or old.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_rows import Row, sample_row

from heshare.shared import files

IMPORT = "import time; began = time.perf_counter(); import heshare; heshare.plan; print(time.perf_counter() - began)"
ESTIMATE = IMPORT.replace("heshare.plan;", "heshare.estimate('V100', ['resnet50:16@50']);")
PLAN = ("-m", "heshare", "plan", "--tasks", "60")
_NOT_PASSED = ("NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE", "HESHARE_ROOT")


def results(starts: int = 3) -> list[Row]:
    """Return seconds of the first plan of 60 tasks in a new process, of the first estimate, and of the import."""
    with tempfile.TemporaryDirectory() as folder:
        clone, elsewhere = Path(folder) / "clone", Path(folder) / "elsewhere"
        elsewhere.mkdir()
        for name in ("heshare", "data"):
            shutil.copytree(files.root() / name, clone / name)
        shutil.copy(files.root() / "pyproject.toml", clone)
        environment = {key: value for key, value in os.environ.items() if key not in _NOT_PASSED}
        environment |= {"PYTHONPATH": str(clone), "XDG_CACHE_HOME": folder}

        def start(*words: str) -> tuple[float, str]:
            """Return the seconds and the output of a new Python process."""
            begin_s = time.perf_counter()
            done = subprocess.run(
                [sys.executable, *words], cwd=elsewhere, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            return time.perf_counter() - begin_s, done.stdout

        start("-m", "heshare", "doctor", "--compile")
        plan_s = [start(*PLAN)[0] for _ in range(starts)]
        inside_s = {
            name: [float(start("-c", program)[1]) for _ in range(starts)]
            for name, program in (("cold_estimate_s", ESTIMATE), ("import_s", IMPORT))
        }
    rows = {"cold_first_plan_s": plan_s, **inside_s}
    return [sample_row(name, seconds, "s") for name, seconds in rows.items()]


if __name__ == "__main__":
    for row in results():
        print(row)
