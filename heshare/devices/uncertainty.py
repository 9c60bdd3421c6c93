"""Relative standard uncertainty of an estimated time or power, by cause."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Relative standard uncertainty of an estimate, by independent causes (standard deviations of the logarithm).

    The 90 % interval of an estimate x is x exp(-1.645 total) to x exp(1.645 total).

    Attributes:
        fit: residual of the fit, inside the framework that was measured.
        framework: spread between frameworks and versions that run the same network.
        host: speed of the host, where the host limits the iteration.
        transfer: what was not measured on this GPU: another GPU, precision, engine, batch size or co-runner.
    """

    fit: float = 0.0
    framework: float = 0.0
    host: float = 0.0
    transfer: float = 0.0

    @property
    def total(self) -> float:
        """Return the uncertainty of the estimate against any measurement: the root of the sum of squares."""
        return math.hypot(self.fit, self.framework, self.host, self.transfer)

    @property
    def within_framework(self) -> float:
        """Return the uncertainty of ratios of estimates inside one framework on one host."""
        return math.hypot(self.fit, self.transfer)
