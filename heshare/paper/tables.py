"""Tables as CSV (every digit) and Markdown (for reading), and the paper's five in its own rows, order and words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from numbers import Integral, Real

import pandas as pd

from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.studies.motivation import PAPER_GPUS
from heshare.policies import registry
from heshare.prediction.features import Feature
from heshare.shared.html_tables import head
from heshare.world.catalogue import gpu, memory_mib, paper_models
from heshare.world.workload import Workload


def to_csv(frame: pd.DataFrame) -> str:
    """Return the frame as CSV text without its index, Unix line ends, floats to the last digit."""
    return frame.to_csv(index=False, lineterminator="\n")


def cell(value: object) -> str:
    """Return one cell as readable text: four significant digits, yes and no, nothing for a missing value."""
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else "no"
    if value is None or value is pd.NA:
        return ""
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        number = float(value)
        if math.isnan(number):
            return ""
        if abs(number) < _NOISE:
            return "0"
        return f"{number:.0f}" if abs(number) >= 1000 and math.isfinite(number) else f"{number:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


_NOISE = 1e-12
"""Numbers of tables below this are rounding errors of sums: zero."""


def _aligned(frame: pd.DataFrame, least: int) -> tuple[list[list[str]], list[tuple[bool, int]]]:
    # Header and rows as padded text, and (whether numeric, width) by column.
    rows = [[str(column) for column in frame.columns]]
    rows += [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    numeric = [pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind) for kind in frame.dtypes]
    columns = [(r, max(least, *map(len, texts))) for r, texts in zip(numeric, zip(*rows, strict=True), strict=True)]
    pad = [[t.rjust(w) if r else t.ljust(w) for t, (r, w) in zip(row, columns, strict=True)] for row in rows]
    return pad, columns


def to_markdown(frame: pd.DataFrame) -> str:
    """Return the frame as a Markdown table with heads in words and aligned columns, numbers to the right."""
    (heads, *body), columns = _aligned(frame.rename(columns=lambda name: head(str(name))), 3)
    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for r, w in columns) + "|"
    lines = [f"| {' | '.join(row)} |" for row in (heads, *body)]
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def to_text(frame: pd.DataFrame) -> str:
    return "\n".join("  ".join(row).rstrip() for row in _aligned(frame, 0)[0])


_ROMAN = {"table1": "I", "table2": "II", "table3": "III", "table4": "IV", "table5": "V"}


def heading(name: str) -> str:
    """Return the heading of an output: `Table V` for `table5_predictors`, `Fig. 6` for `fig06_comparison`."""
    key = name.split("_")[0]
    if key.startswith("fig"):
        return f"Fig. {int(key[3:])}"
    return f"Table {_ROMAN.get(key, key)}"


TRAITS: Mapping[str, str] = {
    "frequency": "GPU Frequency Adjustment",
    "multi_task": "Multi-Task Parallelism",
    "heterogeneous": "Heterogeneous",
}
"""Headings of Table I in the paper, by the name of the trait."""
_PLANS = ("Trade-off", "En-opt", "JCT-opt")
_WHY_NOT_ALIKE: Mapping[tuple[str, str], str] = {
    ("PWR", "multi_task"): "its published code lets tasks share a GPU, and so does the policy here"
}
"""Why a policy of this package has another trait than the paper's Table I says, by system and trait."""


def table_1() -> tuple[pd.DataFrame, str]:
    """Return Table I for reading: the paper's five rows with the policies here beside them, then the other policies.

    Returns:
        The table, and a sentence for each cell in which the policy here is not as the paper says.

    Raises:
        KeyError: such a cell has no reason.
    """
    here = {title: asdict(traits) for title, traits in registry.declared_traits().items()}
    plans = [here.pop(title) for title in _PLANS]
    here["HeShare"] = {trait: all(plan[trait] for plan in plans) for trait in TRAITS}
    paper = {title: asdict(traits) for title, traits in registry.PUBLISHED.items()}
    rows, notes = [], []
    for title in (*paper, *(title for title in here if title not in paper)):
        said, own = paper.get(title, dict.fromkeys(TRAITS)), here[title]
        rows.append(
            {"Solution": title}
            | {words: said[trait] for trait, words in TRAITS.items()}
            | {f"{words}, here": own[trait] for trait, words in TRAITS.items()}
        )
        unlike = [trait for trait in TRAITS if title in paper and said[trait] != own[trait]]
        yes = {True: "yes", False: "no"}
        notes += [
            f"{title}, {TRAITS[trait]}: {yes[said[trait]]} in the paper, {yes[own[trait]]} here, because "
            f"{_WHY_NOT_ALIKE[title, trait]}."
            for trait in unlike
        ]
    return pd.DataFrame(rows).astype(object), " ".join(notes)


_FEATURE_WORDS = (
    "SM utilisation", "memory bandwidth utilisation", "L2 cache utilisation", "execution time",
    "assigned SM percentage for the task", "configuration for GPU frequency", "occupied SM utilisation",
    "occupied memory bandwidth utilisation", "occupied L2 cache utilisation", "energy consumption in the current GPU",
    "SM count", "memory bandwidth", "L2 cache size", "basic power",
)  # fmt: skip
"""Descriptions of the features in the paper's Table II, in the order of `FEATURES`."""


def table_2(features: pd.DataFrame) -> pd.DataFrame:
    """Return Table II for reading: the paper's five groups and its words, with unit and meaning of each feature here.

    `features` has the columns of `Feature` and perhaps ranges over profiles, which follow.
    """
    first = features["group"].ne(features["group"].shift())
    columns = {"Name": features["group"].where(first, ""), "Description": _FEATURE_WORDS, "Unit": features["unit"]}
    meaning = features["meaning"].str[:1].str.upper() + features["meaning"].str[1:]
    return pd.DataFrame({**columns, "Meaning here": meaning}).join(features.iloc[:, len(Feature._fields) :])


_PAPER_GB: Mapping[str, int] = {"T4": 16, "V100": 32, "A100": 80}
"""Memory of the GPUs in the paper's Table III, GB."""


def table_3(names: Sequence[str] = PAPER_GPUS) -> pd.DataFrame:
    """Return Table III, the paper's columns first, with the further values that the device model uses."""
    return pd.DataFrame(
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
        for name, card in ((name, gpu(name)) for name in names)
    )


_TABLE_4 = (
    "resnet152", "resnet101", "resnet50", "resnet34", "resnet18", "densenet121", "densenet161", "densenet201", "vgg19",
    "vgg16", "mobilenet", "mobilenetv2", "bert_large", "transformer", "gpt2",
)  # fmt: skip
"""The workloads in the order of the paper's Table IV."""


def table_4(batch_size: int = 8) -> pd.DataFrame:
    """Return Table IV in the paper's order, with the further values that the device model uses: one row a workload."""
    found = paper_models()
    return pd.DataFrame(
        {
            "Name": found[name].title.replace("MobileNetV2", "MobileNet V2"),
            "Description": found[name].description.partition("; ")[0],
            "A sample here": found[name].description.partition("; ")[2],
            "Load class": found[name].load,
            "Operations (GFLOP per sample)": found[name].gflops,
            "Parameters (million)": found[name].params_m,
            "Layers": found[name].layers,
            f"Memory at inference batch size {batch_size} (MiB)": memory_mib(Workload(name, batch_size)),
        }
        for name in _TABLE_4
    )


_SPLITS: Mapping[str, str] = {"row": "Here", "workload": "New workloads", "gpu": "New GPU"}
_CLAIM_OF: Mapping[str, tuple[str, str]] = {"RF": ("P1", ""), "MLP": ("P2", "")} | {
    name: ("P3", f"{name} ") for name in ("LR", "DT", "SVR")
}


def paper_error_pct(technique: str, error: str) -> float:
    """Return an error of the paper's Table V, %; NaN for a technique that it does not have."""
    if technique not in _CLAIM_OF:
        return math.nan
    id, prefix = _CLAIM_OF[technique]
    return float(paper_claims()[id, f"{prefix}{error}"].paper.split()[0])


def table_5(errors: pd.DataFrame) -> pd.DataFrame:
    """Return Table V: the paper's errors, ours with rows held out as in the paper, and with whole workloads or GPUs.

    `errors` is as from `heshare.prediction.table5.prediction_errors`; the published record is left out.

    Returns:
        One row a technique of each `settings`, in the paper's order; errors in %, time and power together.
    """
    from heshare.prediction.table5 import ERRORS  # imports scikit-learn

    whole = errors[(errors["quantity"] == "both") & (errors["data"] != "published")]
    keys = ["settings", "technique"]
    rows = whole[keys].drop_duplicates().set_axis(["Settings", "Model"], axis="columns")
    for error in ERRORS:
        rows[f"Paper: {error} error (%)"] = [paper_error_pct(name, error) for name in rows["Model"]]
    for (data, split), part in whole.groupby(["data", "split"], sort=False):
        words = _SPLITS[str(split)] + ("" if data == "emulated" else f", {data}")
        for error in ERRORS:
            sizes = part[part["error"] == error].set_index(keys)["mean_pct"].round(2)
            rows[f"{words}: {error} error (%)"] = sizes.reindex(pd.MultiIndex.from_frame(rows.iloc[:, :2])).to_numpy()
    return rows.reset_index(drop=True)
