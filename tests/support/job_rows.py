"""Rows of job files, and the jobs of a result by their names."""

from __future__ import annotations

import json
from typing import Any


def job(name: str, *command: str, like: str = "resnet50:8", **fields: Any) -> str:
    """Return the row of a job; its amount of work is 100 iterations unless a field says another one."""
    work = {} if "expected_time_s" in fields else {"iterations": 100}
    return f"  - {json.dumps({'name': name, 'command': command, 'like': like, **work, **fields})}\n"


def jobs_of(*rows: str) -> str:
    """Return a job file of these rows."""
    return "jobs:\n" + "".join(rows)


def by_job(result: Any) -> dict[str, dict[str, Any]]:
    """Return the rows of a result's table of jobs by name."""
    table: dict[str, dict[str, Any]] = result.jobs.set_index("job").to_dict("index")
    return table
