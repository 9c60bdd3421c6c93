"""A package of twenty lines outside the checkout adds a policy, a GPU, a network and a command by entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heshare.shared.errors import InputError
from heshare.world import catalogue

MODULE = """
from heshare.policies.function_policy import policy
from heshare.policies.policy import Start
from heshare.world.catalogue import memory_mib


@policy("duo", title="Duo", multi_task=True, heterogeneous=True)
def duo(event, view, predictions):
    held = {gpu.index: len(gpu.running) for gpu in view.gpus}
    free_mib = {gpu.index: gpu.free_mib for gpu in view.gpus}
    for task in view.waiting:
        able = [gpu for gpu in view.gpus if held[gpu.index] < 2 and memory_mib(task.workload) <= free_mib[gpu.index]]
        if able:
            best = min(able, key=lambda gpu: (held[gpu.index], predictions.whole_s(task, gpu.gpu), gpu.index))
            held[best.index] += 1
            free_mib[best.index] -= memory_mib(task.workload)
            yield Start(task.id, best.index, 50)
"""
CARD = """
from pathlib import Path
from heshare.world import catalogue

catalogue.register_gpus(Path(__file__).with_name("duo_gpus.csv"))
"""
NETWORKS = """
from pathlib import Path
from heshare.world import catalogue

catalogue.register_models(Path(__file__).with_name("duo_models.csv"))
"""
COMMAND = """
def greet():
    \"\"\"Print a line.\"\"\"
    print("from outside")
"""
ENTRY_POINTS = """
[heshare.policies]
duo = duo
gone = duo_that_is_not_there

[heshare.device_models]
duo-cards = duo_cards

[heshare.workloads]
duo-networks = duo_networks

[heshare.commands]
greet = duo_command:greet
"""

ROWS = {
    "title": ("Made-up card", ""),
    "architecture": ("blackwell", ""),
    "sm_count": ("96", ""),
    "cuda_cores": ("12288", ""),
    "memory_mib": ("32000", "MiB"),
    "mem_bw_gbs": ("1500", "GB/s"),
    "l2_mib": ("64", "MiB"),
    "fp32_tflops": ("60", "TFLOP/s"),
    "fp16_tflops": ("300", "TFLOP/s"),
    "tdp_w": ("300", "W"),
    "idle_w": ("40", "W"),
    "clocks_mhz": ("210:2400:15", "MHz"),
    "mps_clients": ("48", ""),
}

NETWORK = {
    "title": ("ViT", ""),
    "kind": ("transformer", ""),
    "description": ("made up", ""),
    "load": ("none", ""),
    "layers": ("74", ""),
    "gflops": ("35", "GFLOP/sample"),
    "params_m": ("86", "1e6"),
    "activations_m": ("29.0", "1e6/sample"),
    "memory_fixed_mib": ("870", "MiB"),
    "memory_per_sample_mib": ("111", "MiB/sample"),
}
"""A made-up network: value and unit of each field."""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as an installer leaves it."""
    folder = tmp_path_factory.mktemp("site")
    modules = {"duo": MODULE, "duo_cards": CARD, "duo_networks": NETWORKS, "duo_command": COMMAND}
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    for name, key, rows in (("X1", "gpu", ROWS), ("vit", "workload", NETWORK)):
        lines = [f"{name},{field},{value},{unit},assumed,made up\n" for field, (value, unit) in rows.items()]
        file = folder / ("duo_gpus.csv" if key == "gpu" else "duo_models.csv")
        file.write_text(f"{key},field,value,unit,confidence,source\n{''.join(lines)}")
    metadata = folder / "duo-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: duo\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def printed(outside: Path, program: str) -> str:
    """Return what a program prints with the package installed, warnings included."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(outside), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_commands(outside: Path) -> None:
    """Commands show a policy, a GPU, a network and a command of the package."""
    program = """
from heshare.cli import app

for words in ("list policies", "list gpus", "list workloads", "estimate X1 vit:8@50 resnet50:8@50", "greet", "--help"):
    print("===", app(words.split(), standalone_mode=False) or words)
"""
    found = printed(outside, program)
    policies, gpus, workloads, estimate, greet, commands = (part.strip() for part in found.split("===")[:6])
    assert "duo " in policies
    assert "Duo" in policies
    # A warning; the others are there.
    assert "the plug-in gone (duo_that_is_not_there), which cannot be imported" in found
    assert "X1" in gpus
    assert "vit" in workloads
    assert "power_w" in estimate
    assert greet.endswith("from outside")
    assert "greet" in commands


def test_load_class(outside: Path, tmp_path: Path) -> None:
    """A network with a load class is refused, since task sets of the paper draw by it."""
    text = (outside / "duo_models.csv").read_text().replace("vit,load,none", "vit,load,low")
    (tmp_path / "models.csv").write_text(text)
    with pytest.raises(InputError, match="vit with the load low"):
        catalogue.register_models(tmp_path / "models.csv")


@pytest.mark.slow
def test_compared_and_cached(outside: Path, tmp_path: Path) -> None:
    """A policy of the package is compared and its runs are cached."""
    program = f"""
import heshare as hs
from heshare.lab.sweeps import sweep

sweep.CHANGED = "never"  # the clone of a developer may differ from its commit
for again in range(2):
    table = hs.compare(4, "1xT4,1xA100", ["duo", "random"], seeds=2, cells={str(tmp_path)!r})
print(table["title"].tolist(), hs.run(4, "1xT4,1xX1", "duo").cluster)
from heshare.cli import app
app("compare --policy duo --tasks 3 --cluster 1xT4 --seeds 1".split(), standalone_mode=False)
"""
    assert "['Duo', 'Random', 'Duo', 'Random'] 1xT4,1xX1" in printed(outside, program)
    assert len(list(tmp_path.rglob("*.json"))) == 4
