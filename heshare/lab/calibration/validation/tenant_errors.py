"""Errors of the two ways of dividing a GPU's energy, held against the public record of power under MPS.

Nobody has published the energy of a tenant beside another: a counter measures the whole board. What was published are
the power of four networks alone at 10, 50 and 100 % of a V100-SXM2, and that of copies (icloud-ecnu/igniter): one to
five of VGG-19 at 20 %, of which four and five, and two of each network at 50 %, are kept for judging the model. The
reference for a pair of networks is therefore an assumption: both dynamic powers add up, and each tenant causes its own.
By how much that is wrong is known for the copies alone (`copies`); the `Shapley` reference divides as much again,
beyond the sum, equally between the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from heshare.devices.constants import Constants, Timing, read
from heshare.devices.derived_constants import complete_catalogue
from heshare.lab.calibration import power_fit, timing_constants
from heshare.lab.calibration.measurements import MPS_MODELS, MPS_RECORD, records, table, time_rows
from heshare.lab.calibration.time_fit import fit_timing
from heshare.lab.tenants.tenant_power import EQUAL, MODEL, TenantPower, split_energy
from heshare.shared import files
from heshare.world.catalogue import gpu as find_gpu
from heshare.world.workload import Resident, Workload

RECORDED_GPU, ENGINE = "V100-SXM2", "tensorrt"
ADDITIVE, SHAPLEY = "power adds up", "Shapley"
PERCENTAGE = "MPS percentage"
"""Ways of dividing: by the device model's power alone, in proportion to the MPS percentage, equally."""
REFERENCES, WAYS = (ADDITIVE, SHAPLEY), (MODEL, PERCENTAGE, EQUAL)


@dataclass(frozen=True)
class MeasuredTenant:
    """A workload at an MPS percentage whose power alone above idle was published, W."""

    workload: Workload
    mps_pct: int
    dynamic_w: float

    def __str__(self) -> str:
        return f"{self.workload}@{self.mps_pct}"


@cache
def measured_tenants() -> tuple[MeasuredTenant, ...]:
    """Return the workloads at 10 and 50 % whose power alone was published, none of them throttled."""
    idle_w = find_gpu(RECORDED_GPU).idle_w
    rows = power_fit.mps_power()
    return tuple(
        MeasuredTenant(
            Workload(row.workload, int(row.batch_size), engine=ENGINE), int(row.mps_pct), float(row.power_w) - idle_w
        )
        for row in records(rows[rows.mps_pct <= 50])
    )


def copies() -> pd.DataFrame:
    """Return the record of one, two and three copies of VGG-19 at 20 %, as one row a number of copies.

    Returns:
        Columns copies; power_w (measured, W); tenant_w: the dynamic power of one copy in equal parts, which is its
        Shapley value, W; over_alone_pct: by how much that is above the dynamic power of one alone, %.
    """
    rows = table("power")
    rows = rows[rows.batch_size.isna()].sort_values("processes")
    tenant_w = (rows.power_w - find_gpu(RECORDED_GPU).idle_w) / rows.processes
    return pd.DataFrame(
        {
            "copies": rows.processes.astype(int),
            "power_w": rows.power_w,
            "tenant_w": tenant_w,
            "over_alone_pct": 100.0 * (tenant_w / tenant_w.iloc[0] - 1.0),
        }
    ).reset_index(drop=True)


@cache
def pair_errors() -> pd.DataFrame:
    """Return the errors of each tenant of each pair of different networks, one a row.

    Columns reference (of `REFERENCES`), way (of `WAYS`), shares (both MPS percentages, the smaller first, such as
    `10+50`), pair, tenant, reference_w and divided_w (the tenant's part of the board's power, W), error_pct.

    Pairs whose dynamic powers add up to more than the power limit allows are left out. The device model's constants for
    a pair are fitted without the power of either network, and without the time of either at this inference batch size
    and share.
    """
    columns = ["reference", "way", "shares", "pair", "tenant", "reference_w", "divided_w", "error_pct"]
    return pd.DataFrame(_pair_errors(), columns=columns)


def errors_by_way(errors: pd.DataFrame) -> pd.DataFrame:
    """Return one row a reference, way and shares (`all` for all of them), from the rows of `pair_errors`.

    Returns:
        Columns reference, way, shares, tenants (their number), mape_pct, p90_pct, worst_pct: mean, 90th percentile and
        largest of the absolute relative error, %.
    """
    rows = []
    for reference in REFERENCES:
        for way in WAYS:
            part = errors[(errors.reference == reference) & (errors.way == way)]
            groups = [(str(shares), group) for shares, group in part.groupby("shares")]
            for shares, group in [("all", part), *groups]:
                error = group.error_pct.abs()
                rows.append((reference, way, shares, len(group), error.mean(), error.quantile(0.9), error.max()))
    columns = ["reference", "way", "shares", "tenants", "mape_pct", "p90_pct", "worst_pct"]
    return pd.DataFrame(rows, columns=columns)


def rewrite_errors() -> pd.DataFrame:
    """Compute the errors, rewrite `data/calibration/tenant_errors.csv`, and return them as from `errors_by_way`."""
    found = errors_by_way(pair_errors())
    text = found.to_csv(index=False, float_format="%.2f", lineterminator="\n")
    files.write_text(files.root() / "data" / "calibration" / "tenant_errors.csv", text)
    return found


def _pair_errors() -> Iterator[tuple[object, ...]]:
    gpu = find_gpu(RECORDED_GPU)
    beside = float(copies().over_alone_pct[1]) / 100.0
    for first, second in combinations(measured_tenants(), 2):
        pair = first, second
        dynamic_w = np.array([tenant.dynamic_w for tenant in pair])
        if first.workload.model == second.workload.model or gpu.idle_w + dynamic_w.sum() > gpu.tdp_w:
            continue
        power = TenantPower(constants=_constants_without(pair))
        weights: dict[str, list[float]] = {
            MODEL: [power.above_idle_w(gpu, Resident(tenant.workload, tenant.mps_pct)) for tenant in pair],
            PERCENTAGE: [float(tenant.mps_pct) for tenant in pair],
        }
        shares = "+".join(map(str, sorted(tenant.mps_pct for tenant in pair)))
        for reference, excess in ((ADDITIVE, 0.0), (SHAPLEY, beside)):
            beyond_w = excess * dynamic_w.sum()
            reference_w = gpu.idle_w / 2 + dynamic_w + beyond_w / 2
            total_w = float(reference_w.sum())
            for way in WAYS:
                divided_w = split_energy(total_w, gpu.idle_w, weights[way]) if way in weights else [total_w / 2] * 2
                for tenant, own_w, part_w in zip(pair, reference_w.tolist(), divided_w, strict=True):
                    error_pct = 100.0 * (part_w / own_w - 1.0)
                    yield reference, way, shares, f"{first} {second}", str(tenant), own_w, part_w, error_pct


@cache
def _shipped() -> Constants:
    return complete_catalogue(read(files.data("calibration", "constants.csv")))


def _constants_without(pair: tuple[MeasuredTenant, MeasuredTenant]) -> Constants:
    constants = _shipped()
    fitted = {(RECORDED_GPU, ENGINE, tenant.workload.model): _timing_without(tenant) for tenant in pair}
    seen = tuple(name for name in MPS_MODELS if name not in {tenant.workload.model for tenant in pair})
    power = replace(constants.power[RECORDED_GPU], dynamic_w=_dynamic_w(seen))
    return replace(constants, timing={**constants.timing, **fitted}, power={**constants.power, RECORDED_GPU: power})


@cache
def _timing_without(tenant: MeasuredTenant) -> Timing:
    name = tenant.workload.model
    rows = time_rows(RECORDED_GPU, name, MPS_RECORD)
    own: Any = (rows.batch == tenant.workload.batch_size) & np.isclose(rows.share, tenant.mps_pct / 100.0)
    return fit_timing(rows.where(~own), timing_constants.mps_prior(name)).timing


@cache
def _dynamic_w(names: tuple[str, ...]) -> float:
    constants = _shipped()
    timings = {name: constants.timing[RECORDED_GPU, ENGINE, name] for name in names}
    power = constants.power[RECORDED_GPU]
    return power_fit.fit_dynamic_w(timings, names, power.idle_w, power.memory)
