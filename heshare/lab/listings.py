"""Tables of the names that users can give: policies, GPUs and workloads."""

from dataclasses import asdict

import pandas as pd

from heshare.lab.systems.shared import training
from heshare.policies import registry
from heshare.shared import files
from heshare.world import catalogue


def policies() -> pd.DataFrame:
    """Return every policy: name, title, whether `compare` runs it by default, its line in Table I, its parameters."""
    rows = []
    default = registry.default_names()
    for name, entry in registry.policies(variants=True).items():
        parameters = ",".join(f"{key}={registry.format_value(value)}" for key, value in entry.parameters.items())
        traits = asdict(entry.make().traits)
        rows.append(
            {"name": name, "title": entry.title, "default": name in default, **traits, "parameters": parameters}
        )
    return pd.DataFrame(rows)


def gpus() -> pd.DataFrame:
    """Return every GPU of `data/gpus.csv`: name, title, size, power, clocks, and whether its profiles are shipped.

    `heshare estimate` and policies without predictions support all of them.

    Example:
        >>> import heshare as hs
        >>> list(hs.gpus().query("profiles")["name"])
        ['T4', 'V100', 'A100']
    """
    profiles = files.data("profiles", "emulated")
    return pd.DataFrame(
        {
            "name": gpu.name,
            "title": gpu.title,
            "architecture": gpu.architecture,
            "sm_count": gpu.sm_count,
            "memory_mib": gpu.memory_mib,
            "tdp_w": gpu.tdp_w,
            "clocks": len(gpu.clocks_mhz),
            "lowest_mhz": gpu.clocks_mhz[0],
            "highest_mhz": gpu.clocks_mhz[-1],
            "profiles": (profiles / gpu.name / "profile.csv").is_file(),
        }
        for gpu in catalogue.gpus().values()
    )


def models() -> pd.DataFrame:
    """Return every workload: the models of Table IV, others of `data/workloads.csv`, and recorded trainings.

    `load` is the class from which task sets are drawn, `none` for workloads that are never drawn. `batch_sizes` are
    those of a recorded training; a model runs with any inference batch size.

    Example:
        >>> import heshare as hs
        >>> list(hs.models().query("load == 'high'")["name"])
        ['bert_large', 'transformer', 'gpt2']
    """
    rows = [
        {"name": model.name, "title": model.title, "kind": model.kind, "load": model.load, "batch_sizes": "any"}
        for model in catalogue.models().values()
    ]
    sizes: dict[str, list[str]] = {}
    for workload in training.workloads():
        sizes.setdefault(workload.model, []).append(str(workload.batch_size))
    rows += [
        {"name": f"{name}-train", "title": name, "kind": "training", "load": "none", "batch_sizes": " ".join(known)}
        for name, known in sizes.items()
    ]
    return pd.DataFrame(rows)
