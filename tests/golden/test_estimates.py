"""Golden estimates of the device model: a changed constant or form shows here, number by number."""

from __future__ import annotations

import pandas as pd

from heshare.device_query import estimate

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

# Training, time slices and MIG; all members of a set share in the same way.
SHARED = (
    ("V100-SXM2", ["eaco_alexnet-train:32", "eaco_vgg16-train:32"], None),
    (
        "V100-SXM2",
        [f"eaco_{model}-train:32@time-slice" for model in ("alexnet", "resnet18", "resnet50", "vgg16")],
        None,
    ),
    ("V100", ["gavel_resnet50-train:64@time-slice", "gavel_lm-train:80@time-slice"], 1005),
    ("V100", ["resnet50:16@time-slice", "bert_large:8@time-slice", "mobilenet:4@time-slice"], None),
    ("T4", ["miso_gnn-train:128"], None),
    ("A100", ["miso_transformer-train:128@mig-4g", "miso_resnet-train:256@mig-3g"], None),
    ("A100", ["resnet50:16@mig-1g", "miso_bert-train:2@mig-2g"], 900),
    ("H100", ["miso_transformer-train:32", "resnet50:16@50"], None),
)


def test_training_and_other_ways_of_sharing_are_kept(dataframe_regression):
    check(dataframe_regression, [(gpu, residents, clock, "eager") for gpu, residents, clock in SHARED])


def test_estimates_are_kept(dataframe_regression):
    check(dataframe_regression, QUESTIONS)


def check(dataframe_regression, questions):
    table = []
    for gpu, residents, clock, engine in questions:
        answer = estimate(gpu, residents, clock, engine=engine)
        for resident, task in zip(residents, answer.tasks, strict=True):
            name = f"{gpu} {resident} of {len(residents)}"
            shares = (task.sm_util_pct, task.dram_util_pct, task.l2_util_pct)
            table.append((name, 1e3 * task.time_s, answer.sm_mhz, answer.power_w, *shares))
    columns = ["question", "time_ms", "sm_mhz", "power_w", "sm_util_pct", "dram_util_pct", "l2_util_pct"]
    dataframe_regression.check(pd.DataFrame(table, columns=columns), default_tolerance={"rtol": 1e-3, "atol": 1e-6})
