"""Tables III to V in the paper's own shape: GPUs and workloads as the catalogue has them, errors of predictors."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from heshare.reporting.motivation import PAPER_GPUS
from heshare.world.catalogue import gpu, memory_mib, models
from heshare.world.workload import Workload


def table_3(names: Sequence[str] = PAPER_GPUS) -> pd.DataFrame:
    """Table III and what the device model needs besides: one row a GPU."""
    rows = []
    for card in map(gpu, names):
        rows.append(
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
        )
    return pd.DataFrame(rows)


def table_4(batch_size: int = 8) -> pd.DataFrame:
    """Table IV and what the device model needs besides: one row a workload."""
    rows = []
    for model in models().values():
        rows.append(
            {
                "Name": model.title,
                "Description": model.description,
                "Load": model.load,
                "GFLOP a sample": model.gflops,
                "Parameters (M)": model.params_m,
                "Layers": model.layers,
                f"Memory at {batch_size} (MiB)": memory_mib(Workload(model.name, batch_size)),
            }
        )
    return pd.DataFrame(rows)


def table_5(errors: pd.DataFrame) -> pd.DataFrame:
    """Table V as the paper prints it: one row a technique, its absolute and relative errors side by side.

    Args:
        errors: as from `heshare.prediction.compare.table5`.

    Returns:
        Columns Model, then one for each kind of data, split and error, %; time and power together where both were
        recorded.
    """
    whole = errors[(errors["quantity"] == "both") | (errors["data"] == "published")]
    named = whole.assign(column=whole["data"] + ", by " + whole["split"] + ", " + whole["error"] + " (%)")
    wide = named.pivot_table(index="technique", columns="column", values="mean_pct", sort=False)
    return wide.round(2).rename_axis(None, axis=1).rename_axis("Model").reset_index()
