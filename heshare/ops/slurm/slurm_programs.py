"""Calls of Slurm's own programs: squeue and scontrol, with a time limit, and errors as one message."""

import os
import subprocess
from collections.abc import Sequence

from heshare.shared.errors import HeShareError

CALL_S = 60.0
"""How long a program may take, s; slurmctld answers in milliseconds, or not at all."""


class SlurmError(HeShareError):
    """Slurm is not there, does not answer, or refuses."""


def call(command: Sequence[str]) -> str:
    """Return what one of Slurm's programs printed.

    Args:
        command: the program and its arguments; no shell interprets them.

    Raises:
        SlurmError: the program is missing, takes too long, or fails.
    """
    # Variables such as SQUEUE_FORMAT and SQUEUE_STATES change what squeue prints.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SQUEUE_", "SLURM_TIME_FORMAT"))}
    shown = " ".join(command[:3])
    try:
        done = subprocess.run(
            list(command),
            env={**kept, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CALL_S,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(
            f"{command[0]} is not on the PATH. Run this where Slurm's commands are installed, as a user whom Slurm "
            "lets change jobs (root, SlurmUser or an operator)."
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{shown}: no answer within {CALL_S:g} s. Check slurmctld (scontrol ping).") from None
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").split() or [f"exit code {done.returncode}"]
        raise SlurmError(f"{shown}: {' '.join(words)[:300]}")
    return done.stdout.decode(errors="replace")
