"""Tables as CSV (every digit) and Markdown (for reading).

Tables III to V in the paper's own shape: GPUs and workloads as the catalogue has them, errors of predictors.
"""

import math
import re
from collections.abc import Sequence
from numbers import Integral, Real

import pandas as pd

from heshare.experiments.studies.motivation import PAPER_GPUS
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


_UNITS = {"pct": "%", "s": "s", "ms": "ms", "us": "µs", "j": "J", "mj": "MJ", "w": "W", "mhz": "MHz", "mib": "MiB"}
_WORDS = {
    "avg": "average",
    "jct": "JCT",
    "gpu": "GPU",
    "gpus": "GPUs",
    "mps": "MPS",
    "sm": "SM",
    "p90": "90th percentile of",
    "p99": "99th percentile of",
    "mape": "mean |error|",
}
_NOISE = 1e-12
"""Numbers of tables below this are rounding errors of sums: zero."""


def head(name: str) -> str:
    """Return a column's name as words with its unit in parentheses: `avg_jct_s_low` is `Average JCT (s), low`.

    A name that is not in lower case with underscores is returned as it is.
    """
    if name == "n" or not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", name):
        return name
    parts = name.split("_")
    end = f", {parts.pop()}" if parts[-1] in ("low", "high") and len(parts) > 1 else ""
    unit = f" ({_UNITS[parts.pop()]})" if parts[-1] in _UNITS and len(parts) > 1 else ""
    words = " ".join(_WORDS.get(part, part) for part in parts)
    return f"{words[:1].upper()}{words[1:]}{unit}{end}"


def _aligned(frame: pd.DataFrame, least: int) -> tuple[list[list[str]], list[tuple[bool, int]]]:
    """Return header and rows as text padded to at least so many characters, and (whether numeric, width) by column."""
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
    """Return the frame as text for a terminal, with aligned columns and no rules."""
    return "\n".join("  ".join(row).rstrip() for row in _aligned(frame, 0)[0])


def table_3(names: Sequence[str] = PAPER_GPUS) -> pd.DataFrame:
    """Return Table III with the further values that the device model uses: one row a GPU."""
    return pd.DataFrame(
        {
            "GPU": card.title,
            "SMs": card.sm_count,
            "CUDA cores": card.cuda_cores,
            "TDP (W)": card.tdp_w,
            "Memory (MiB)": card.memory_mib,
            "Bandwidth (GB/s)": card.mem_bw_gbs,
            "L2 (MiB)": card.l2_mib,
            "FP32 (TFLOP/s)": card.fp32_tflops,
            "SM clocks (MHz)": f"{card.clocks_mhz[0]} to {card.max_mhz}, {len(card.clocks_mhz)} steps",
            "Idle (W)": card.idle_w,
            "MPS clients": card.mps_clients,
        }
        for card in map(gpu, names)
    )


def table_4(batch_size: int = 8) -> pd.DataFrame:
    """Return Table IV with the further values that the device model uses: one row a workload."""
    return pd.DataFrame(
        {
            "Name": model.title,
            "Description": model.description,
            "Load": model.load,
            "GFLOP a sample": model.gflops,
            "Parameters (M)": model.params_m,
            "Layers": model.layers,
            f"Memory at {batch_size} (MiB)": memory_mib(Workload(model.name, batch_size)),
        }
        for model in paper_models().values()
    )


def table_5(errors: pd.DataFrame) -> pd.DataFrame:
    """Return Table V in the paper's layout: one row a technique, its absolute and relative errors side by side.

    Args:
        errors: as from `heshare.prediction.table5.table5`.

    Returns:
        Columns Model, then one for each kind of data, split and error, %; time and power together where both were
        recorded.
    """
    whole = errors[(errors["quantity"] == "both") | (errors["data"] == "published")]
    named = whole.assign(column=whole["data"] + ", by " + whole["split"] + ", " + whole["error"] + " (%)")
    wide = named.pivot_table(index="technique", columns="column", values="mean_pct", sort=False)
    return wide.round(2).rename_axis(None, axis=1).rename_axis("Model").reset_index()
