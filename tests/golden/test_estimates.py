"""Estimates kept from one version to the next: a changed constant or form shows here, number by number."""

from __future__ import annotations

import pandas as pd

from heshare.devices.estimate import estimate

QUESTIONS = (
    ("T4", ["resnet50:8"], None, "eager"),
    ("T4", ["resnet50:8@50", "vgg19:8@50"], None, "eager"),
    ("T4", ["bert_large:4"], 585, "eager"),
    ("V100", ["resnet50:16@50", "vgg19:8@50"], None, "eager"),
    ("V100", ["densenet161:4"], 1005, "tensorrt"),
    ("V100-SXM2", ["resnet50:8@40", "vgg19:16@60"], None, "tensorrt"),
    ("V100-SXM2", ["vgg19:16@20", "vgg19:16@20", "vgg19:16@20"], None, "tensorrt"),
    ("A100", ["mobilenetv2:4"], None, "eager"),
    ("A100", ["resnet152:32", "bert_large:8"], None, "eager"),
    ("A100", ["gpt2:8", "transformer:8"], 1005, "eager"),
    ("H100", ["resnet50:32"], None, "eager"),
)


def test_estimates_are_kept(dataframe_regression):
    table = []
    for gpu, residents, clock, engine in QUESTIONS:
        found = estimate(gpu, residents, clock, engine=engine)
        for resident, task in zip(residents, found.tasks, strict=True):
            name = f"{gpu} {resident} of {len(residents)}"
            shares = (task.sm_util_pct, task.dram_util_pct, task.l2_util_pct)
            table.append((name, 1e3 * task.time_s, found.sm_mhz, found.power_w, *shares))
    columns = ["question", "time_ms", "sm_mhz", "power_w", "sm_util_pct", "dram_util_pct", "l2_util_pct"]
    dataframe_regression.check(pd.DataFrame(table, columns=columns), default_tolerance={"rtol": 1e-3, "atol": 1e-6})
