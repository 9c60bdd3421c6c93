"""Without numba everything gives the bytes of compiled code."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

BLOCKED = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refusing())
"""
COMPILED = "from heshare.devices import crowding; crowding.compiled_later.compile()"
ESTIMATES = """
import heshare as hs
texts = [["resnet50:16@50", "vgg19:8@50"], ["bert_large:8@30", "vgg16:4@30", "resnet50:1@40"], ["resnet50:64"]]
for gpu in ("T4", "V100", "A100", "H100"):
    for residents in texts:
        answer = hs.estimate(gpu, residents)
        print(gpu, answer.power_w.hex(), answer.sm_mhz, [task.time_s.hex() for task in answer.tasks])
"""
PROGRAM = """
import heshare as hs
tasks, cluster = hs.task_set(2, seed=0), "1xT4,1xA100"
def shown(front):
    print(front.objectives.tobytes().hex(), [str(plan.to_frame().to_csv()) for plan in front])
front = hs.plan(tasks, cluster, seed=0)
shown(front)
for policy in (front.trade_off, "heshare:jct-opt", "fikit", "marginal"):
    done = hs.run(tasks, cluster, policy, seed=0)
    print(done, done.to_frame().to_csv())
from heshare.lab.plus.heshare_plus import SearchSettings, optimise
from heshare.lab.plus.lower_bound import bound_along
import numpy as np
from heshare.world.cluster import Cluster
predictor = hs.load_predictor()
gpus, rng, effort = Cluster.parse(cluster), np.random.default_rng(0), SearchSettings(rounds=1)
better = optimise(tasks, gpus, predictor, rng=rng, effort=effort)
shown(better)
print(bound_along(better, predictor, tolerance=0.01).gap_pct(better.objectives).tobytes().hex())
"""


def started(program: str) -> subprocess.CompletedProcess[str]:
    show = "\nimport sys; print(sorted({'numba', 'scipy.optimize'} & set(sys.modules)), file=sys.stderr)"
    command = [sys.executable, "-c", program + show]
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_first_estimates_import_no_numba_and_are_those_of_compiled_code() -> None:
    python, compiled = started(ESTIMATES), started(COMPILED + ESTIMATES)
    assert python.stdout == compiled.stdout
    assert python.stderr.splitlines()[-1] == "[]"
    assert compiled.stderr.splitlines()[-1] == "['numba']"


@pytest.mark.slow
def test_plans_searches_bounds_and_runs_are_the_same_without_numba_which_is_told_once() -> None:
    python, compiled = started(BLOCKED + PROGRAM), started(PROGRAM)
    assert python.stdout == compiled.stdout
    assert python.stderr.count("no numba") == 1
    assert "pip install 'heshare[fast]'" in python.stderr
    assert "numba" not in json.loads(python.stderr.splitlines()[-1].replace("'", '"'))
