"""Left-out points beyond what a row was fitted to: other frameworks, larger inference batches, smaller MPS shares."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from heshare.lab.calibration import framework_tables
from heshare.lab.calibration.device_model_fit import Calibration
from heshare.lab.calibration.uncertainty_fit import BeyondFit, larger_batches, quantile_spread, smaller_shares
from heshare.lab.calibration.validation.points import LeftOutPoint
from heshare.world import catalogue


def other_frameworks(calibration: Calibration) -> Iterator[LeftOutPoint]:
    """Yield times in frameworks that entered no fit, the spreads between frameworks fitted without this one."""
    errors = framework_tables.framework_errors(calibration.constants)
    spreads = framework_tables.left_out_framework_spreads(errors)
    uncertainties = {name: errors.uncertainty(fitted) for name, fitted in spreads.items()}
    for index, resident in enumerate(errors.residents):
        workload, framework = resident.workload, errors.framework[index]
        yield LeftOutPoint(
            "other frameworks, a framework left out",
            errors.gpu[index],
            f"{workload.model}, {framework}",
            f"b{workload.batch_size} {workload.precision}",
            "s",
            float(errors.measured[index]),
            float(errors.modelled[index]),
            float(uncertainties[framework][index]),
            catalogue.kind(workload.model),
            workload.precision,
            workload.engine,
        )


def beyond_fit(
    test: str, fits: Callable[[], Mapping[tuple[str, str], BeyondFit]], _: Calibration
) -> Iterator[LeftOutPoint]:
    """Yield times beyond the range of a fit, the growth of uncertainty with distance fitted without this workload."""
    found = fits()
    for (gpu, name), fit in found.items():
        spread = quantile_spread([other.errors for key, other in found.items() if key != (gpu, name)])
        rows = fit.unseen
        for batch, share, measured, modelled, distance in zip(
            rows.batch, rows.share, rows.time_s, fit.modelled_s, fit.distance, strict=True
        ):
            uncertainty = math.hypot(fit.fitted.timing.uncertainty, spread * distance)
            setting, engine = f"b{batch:.0f} {100 * share:.0f} %", "eager" if gpu == "A100" else "tensorrt"
            values = float(measured), float(modelled), uncertainty
            yield LeftOutPoint(test, gpu, name, setting, "s", *values, "cnn", "fp32", engine)


TESTS: tuple[Callable[[Calibration], Iterator[LeftOutPoint]], ...] = (
    other_frameworks,
    partial(beyond_fit, "larger inference batch sizes from small ones", larger_batches),
    partial(beyond_fit, "MPS shares of 10 to 60 % from 80 and 100 %", smaller_shares),
)
"""The tests of what was not measured, in the order of `errors.csv`."""
