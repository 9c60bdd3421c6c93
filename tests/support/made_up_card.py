"""Rows of `data/gpus.csv` and `data/workloads.csv` for a made-up card and network: value and unit by field."""

ROWS = {
    "title": ("Made-up card", ""),
    "architecture": ("later", ""),
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
    "activations_m": ("16.5", "1e6/sample"),
    "memory_fixed_mib": ("870", "MiB"),
    "memory_per_sample_mib": ("63", "MiB/sample"),
}
