"""A stand-in for `nvidia-cuda-mps-control`: a script that starts a real daemon process, obeys `quit`, or misbehaves."""

from __future__ import annotations

import sys
from pathlib import Path

_SCRIPT = """#!{python} -SE
import os, pathlib, shutil, signal, subprocess, sys, time
mode = {mode!r}
pipe, log = (pathlib.Path(os.environ[name]) for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"))
note = pipe / "nvidia-cuda-mps-control.pid"
ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True);" if mode == "ignores-stop" else ""
if sys.argv[1:] == ["-d"]:
    (log / "control.log").write_text("Starting control daemon\\n" + mode + " daemon\\n")
    if mode == "refuses":
        sys.exit(1)
    if mode == "hangs":
        time.sleep(3600)
    if mode != "no-pid":
        name = "open('/proc/self/comm', 'w').write('nvidia-cuda-mps-control'[:15]);"
        code = "import signal, time;" + name + ignore + "time.sleep(3600)"
        daemon = subprocess.Popen([sys.executable, "-SEc", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if ignore:
            daemon.stdout.readline()
        note.write_text(str(daemon.pid) + "\\n")
        if mode == "ignores-stop":
            server = pathlib.Path(sys.argv[0]).with_name("nvidia-cuda-mps-server")
            shutil.copy(shutil.which("sleep"), server)
            pid = subprocess.Popen([server, "3600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid
            server.with_suffix(".pid").write_text(str(pid))
    os._exit(0)
command = sys.stdin.read()
if mode == "ignores-stop":
    time.sleep(3600)
if command.startswith("quit"):
    os.kill(int(note.read_text()), signal.SIGTERM)
"""


def install(folder: Path, mode: str = "works") -> Path:
    """Write the script into `folder`, which belongs on the PATH.

    Args:
        folder: where to.
        mode: `works`; `refuses` (exits with 1), `hangs` (never returns), `no-pid` (starts no daemon), or `ignores-stop`
            (its daemon ignores `quit` and SIGTERM, and has a server, whose id is in `nvidia-cuda-mps-server.pid`).

    Returns:
        The script's path.
    """
    path = folder / "nvidia-cuda-mps-control"
    path.write_text(_SCRIPT.format(python=sys.executable, mode=mode), encoding="utf-8")
    path.chmod(0o755)
    return path
