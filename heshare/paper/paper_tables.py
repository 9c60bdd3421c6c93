"""Tables I to V for reading: the rows, columns and text of the paper first, then additions of this package."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pandas as pd

from heshare.paper.claims.paper_claims import paper_claims
from heshare.policies import registry
from heshare.prediction.features import FEATURES
from heshare.world.catalogue import gpu, memory_mib, paper_models
from heshare.world.workload import Workload

TRAITS: Mapping[str, str] = {
    "frequency": "GPU Frequency Adjustment",
    "multi_task": "Multi-Task Parallelism",
    "heterogeneous": "Heterogeneous",
}
"""Heads of Table I in the paper, by the name of the trait."""
_PLANS = ("Trade-off", "En-opt", "JCT-opt")
_WHY_NOT_ALIKE: Mapping[tuple[str, str], str] = {
    ("PWR", "multi_task"): "its published code lets tasks share a GPU, and so does the policy here"
}
"""Why a policy of this package has another trait than in the paper's Table I, by system and trait."""


def table_1() -> tuple[pd.DataFrame, str]:
    """Return Table I: the paper's five rows with the policies here in further columns, then the other policies.

    Returns:
        The table, and a sentence for each cell in which the policy here differs from the paper.

    Raises:
        KeyError: such a cell has no reason.
    """
    here = {title: asdict(traits) for title, traits in registry.declared_traits().items()}
    plans = [here.pop(title) for title in _PLANS]
    here["HeShare"] = {trait: all(plan[trait] for plan in plans) for trait in TRAITS}
    paper = {title: asdict(traits) for title, traits in registry.PUBLISHED.items()}
    unknown = dict.fromkeys(TRAITS)

    rows = []
    for title in (*paper, *(title for title in here if title not in paper)):
        said = {words: paper.get(title, unknown)[trait] for trait, words in TRAITS.items()}
        declared = {f"{words}, here": here[title][trait] for trait, words in TRAITS.items()}
        rows.append({"Solution": title, **said, **declared})

    notes = [
        _why_not_alike(title, trait, said)
        for title, traits in paper.items()
        for trait, said in traits.items()
        if said != here[title][trait]
    ]
    return pd.DataFrame(rows).astype(object), " ".join(notes)


def _why_not_alike(title: str, trait: str, said: bool) -> str:
    paper, here = ("yes", "no") if said else ("no", "yes")
    return f"{title}, {TRAITS[trait]}: {paper} in the paper, {here} here, because {_WHY_NOT_ALIKE[title, trait]}."


_FEATURE_WORDS = (
    "SM utilization", "memory bandwidth utilization", "L2 cache utilization", "execution time",
    "assigned SM percentage for the task", "configuration for GPU frequency", "occupied SM utilization",
    "occupied memory bandwidth utilization", "occupied L2 cache utilization", "energy consumption in the current GPU",
    "SM count", "memory bandwidth", "L2 cache size", "basic power",
)  # fmt: skip
"""Descriptions of the features in the paper's Table II, in the order of `FEATURES`."""


def table_2() -> pd.DataFrame:
    """Return Table II: the paper's five groups and its text, with unit and meaning of each feature here."""
    groups = pd.Series([feature.group for feature in FEATURES])
    meanings = [feature.meaning[:1].upper() + feature.meaning[1:] for feature in FEATURES]
    return pd.DataFrame(
        {
            "Name": groups.where(groups.ne(groups.shift()), ""),
            "Description": _FEATURE_WORDS,
            "Unit": [feature.unit for feature in FEATURES],
            "Meaning here": meanings,
        }
    )


_PAPER_GB: Mapping[str, int] = {"T4": 16, "V100": 32, "A100": 80}
"""Memory of the GPUs in the paper's Table III, GB."""


def table_3(names: Sequence[str] = ("T4", "V100", "A100")) -> pd.DataFrame:
    """Return Table III, the paper's columns first, with further values of the device model."""
    rows = []
    for name in names:
        card = gpu(name)
        rows.append(
            {
                "GPU Platform": card.title,
                "SM Count": card.sm_count,
                "CUDA Cores": card.cuda_cores,
                "Power (TDP, W)": card.tdp_w,
                "Memory (GB)": _PAPER_GB[name],
                "Usable memory (MiB)": card.memory_mib,
                "Bandwidth (GB/s)": card.mem_bw_gbs,
                "L2 cache (MiB)": card.l2_mib,
                "FP32 (TFLOP/s)": card.fp32_tflops,
                "SM clocks (MHz)": f"{card.clocks_mhz[0]} to {card.max_mhz}, {len(card.clocks_mhz)} steps",
                "Idle power (W)": card.idle_w,
                "MPS clients": card.mps_clients,
            }
        )
    return pd.DataFrame(rows)


_TABLE_4 = (
    "resnet152", "resnet101", "resnet50", "resnet34", "resnet18", "densenet121", "densenet161", "densenet201", "vgg19",
    "vgg16", "mobilenet", "mobilenetv2", "bert_large", "transformer", "gpt2",
)  # fmt: skip
"""The workloads in the order of the paper's Table IV."""


def table_4(batch_size: int = 8) -> pd.DataFrame:
    """Return Table IV in the paper's order, with further values of the device model: one row a workload.

    `batch_size` is the inference batch size of the memory column.
    """
    rows = []
    for name in _TABLE_4:
        model = paper_models()[name]
        description, _, sample = model.description.removesuffix(" a sample").partition("; ")
        rows.append(
            {
                "Name": model.title.replace("MobileNetV2", "MobileNet V2"),
                "Description": description,
                "A sample here": sample.removesuffix(",") or "one image of 224 x 224",
                "Load class": model.load,
                "Operations of a sample (GFLOP)": model.gflops,
                "Parameters (million)": model.params_m,
                "Layers with weights": model.layers,
                f"Memory of a process, {batch_size} samples (MiB)": memory_mib(Workload(name, batch_size)),
            }
        )
    return pd.DataFrame(rows)


_CLAIM_OF: Mapping[str, tuple[str, str]] = {
    "SVR": ("P3", "SVR "),
    "DT": ("P3", "DT "),
    "LR": ("P3", "LR "),
    "MLP": ("P2", ""),
    "RF": ("P1", ""),
}
"""The claim that has the errors of a technique of Table V, and what its part begins with; in the paper's order."""


def paper_errors() -> pd.DataFrame:
    """Return the errors of the paper's Table V.

    Returns:
        One row a technique and error: technique, error (`absolute`, `relative`), paper_pct.
    """
    rows = [
        {"technique": name, "error": error, "paper_pct": paper_claims()[id, f"{prefix}{error}"].value}
        for name, (id, prefix) in _CLAIM_OF.items()
        for error in ("absolute", "relative")
    ]
    return pd.DataFrame(rows)


def table_5(errors: pd.DataFrame) -> pd.DataFrame:
    """Return Table V: five rows, the paper's two columns and ours; `errors` has paper_pct and mean_pct of each."""
    sizes = errors.pivot_table(index="technique", columns="error", values=["paper_pct", "mean_pct"])
    wide = sizes.loc[list(_CLAIM_OF)]
    return pd.DataFrame(
        {
            "Model": wide.index,
            "Absolute error, paper (%)": wide["paper_pct", "absolute"].to_numpy(),
            "Relative error, paper (%)": wide["paper_pct", "relative"].to_numpy(),
            "Absolute error, here (%)": wide["mean_pct", "absolute"].to_numpy(),
            "Relative error, here (%)": wide["mean_pct", "relative"].to_numpy(),
        }
    )
