"""Tables III and IV: the GPUs and the workloads, as the catalogue has them."""

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
