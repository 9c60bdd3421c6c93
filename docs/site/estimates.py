"""Tables of answers of `heshare.estimate` for the page `estimate.html`, a file a card, which the page looks up.

Each file has all answers for one workload alone on the card: every inference batch size of `SIZES` that fits, every MPS
percentage of `SHARES`, every clock. A value is kept as the page shows it, with three digits, as one whole number: 900
for each power of ten plus what its digits are above 100. Along the clocks the second differences of these numbers are
mostly 0 or 1, so that deflate packs an answer of eight values into about a byte.
"""

import base64
import json
import os
import shutil
import zlib
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import heshare
from heshare.devices.device_model import co_run
from heshare.lab.systems.shared import training
from heshare.paper.provenance.commit import git_commit
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import DEFAULT_PRECISION

HERE = Path(__file__).resolve().parent
SHARES = range(10, 101, 10)
SIZES, LANGUAGE_SIZES = [2**power for power in range(8)], [2**power for power in range(9)]
LEAST_POWER = 12
"""Values are above 10 to the minus this."""
Codes = npt.NDArray[np.int64]


def write(folder: Path, only: Collection[str] = ()) -> dict[str, str]:
    """Write the script, its style and the tables; return what the page's text says of them, by its placeholder.

    `only` has the names of cards and of workloads to which the tables are limited; without any of a kind, all of it.
    """
    folder.mkdir(parents=True)
    for name in ("estimate.js", "estimate.css"):
        shutil.copyfile(HERE / name, folder / name)
    cards = [card for card in catalogue.gpus() if card in only] or list(catalogue.gpus())
    known = [*catalogue.models(), *(f"{name}-train" for name, _ in training.steps())]
    names = [name for name in dict.fromkeys(known) if name in only] or list(dict.fromkeys(known))
    with ProcessPoolExecutor(min(len(cards), os.cpu_count() or 1)) as processes:
        numbers = list(processes.map(partial(_write_card, folder, names), cards))
    options = "".join(f'<option value="{card}">{catalogue.gpu(card).title}</option>' for card in cards)
    commit = git_commit() or "unknown"
    return {
        "% cards": options,
        "% answers": f"{sum(numbers):,}",
        "% number-of-cards": str(len(cards)),
        "% number-of-workloads": str(len(names)),
        "% version": f"{heshare.__version__}, commit {commit[:12]}{'+' * commit.endswith('+')}",
    }


def _write_card(folder: Path, names: Collection[str], card: str) -> int:
    gpu = catalogue.gpu(card)
    workloads = [about for name in names if (about := _workload(gpu, name))["sizes"]]
    codes = np.array([row for about in workloads for row in _rows(gpu, about)]).transpose(1, 0, 2)
    content = {
        "name": gpu.name,
        "limit_w": gpu.tdp_w,
        "clocks_mhz": gpu.clocks_mhz,
        "shares": list(SHARES),
        "workloads": workloads,
        "packed": base64.b64encode(zlib.compress(_differences(codes), 9)).decode(),
    }
    text = json.dumps(content, separators=(",", ":"))
    (folder / f"{card}.js").write_text(f"heshareCard({text})\n", "utf-8")
    return int(codes[0].size)


def _workload(gpu: Gpu, name: str) -> dict[str, Any]:
    """Return what the page has to know of a workload: how it is asked for, and the sizes that fit the card."""
    model = catalogue.models().get(name)
    if model is None:
        sizes = sorted(size for recorded, size in training.steps() if name == f"{recorded}-train")
        group, title = "Training", name.removesuffix("-train")
    else:
        sizes, group, title = SIZES, "Inference", model.title
        if model.language is not None:
            sizes, group = LANGUAGE_SIZES, "Language models"
    precision = "fp16" if group == "Language models" else DEFAULT_PRECISION
    fitting, anchored, arithmetic = [], [], ""
    for size in sizes:
        try:
            (task,) = heshare.estimate(gpu.name, f"{name}:{size}", precision=precision).tasks
        except InputError:  # more memory than the card has
            continue
        fitting.append(size)
        anchored.append(task.anchored)
        arithmetic = task.arithmetic
    about = {"name": name, "title": title, "group": group, "precision": precision, "arithmetic": arithmetic}
    return about | {"sizes": fitting, "anchored": anchored}


def _rows(gpu: Gpu, workload: dict[str, Any]) -> Iterator[Codes]:
    """Yield the numbers of a workload's answers along the clocks, (8, clocks), for each size and share."""
    for size in workload["sizes"]:
        for share in SHARES:
            resident = catalogue.resident(f"{workload['name']}:{size}@{share}", precision=workload["precision"])
            answers = []
            for clock_mhz in gpu.clocks_mhz:
                answer = co_run(gpu, [resident], clock_mhz)  # what `heshare.estimate` returns
                (task,) = answer.tasks
                low_s, high_s = task.uncertainty_parts.interval(task.time_s)
                low_w, high_w = answer.power_uncertainty_parts.interval(answer.power_w)
                energy_j = answer.power_w * task.time_s
                powers = answer.power_w, low_w, min(high_w, gpu.tdp_w)  # the limit holds it
                answers.append((task.time_s, low_s, high_s, *powers, energy_j, answer.sm_mhz))
            values = np.array(answers).T
            yield np.vstack([_codes(values[:-1]), np.rint(values[-1:]).astype(np.int64)])


def _codes(values: npt.NDArray[np.float64]) -> Codes:
    """Return the whole numbers that stand for values with three digits."""
    power = np.floor(np.log10(values))
    digits = np.rint(values / 10.0 ** (power - 2.0))
    # 9.995 is written 1.00 of the next power, which is the same number.
    return np.asarray(900 * (power + LEAST_POWER) + digits - 100, dtype=np.int64)


def _differences(codes: Codes) -> bytes:
    """Return second differences along the last axis without signs, all low bytes before all high bytes."""
    first = np.diff(codes, axis=-1)
    found = np.concatenate([codes[..., :1], first[..., :1], np.diff(first, axis=-1)], axis=-1)
    unsigned = ((found << 1) ^ (found >> 63)).astype(np.uint16)
    return bytes((unsigned & 255).astype(np.uint8)) + bytes((unsigned >> 8).astype(np.uint8))
