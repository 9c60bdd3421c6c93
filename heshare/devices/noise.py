"""Repeat noise: how far one recording lies from the next."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import chi2

from heshare.errors import InputError

TIME_CV, POWER_CV = 0.0099, 0.0036
"""Sizes of the noise in the public record: of a time over the time, of a power over the power."""


def repeat_cv(cv: ArrayLike, repeats: ArrayLike) -> float:
    """Size of the noise of one reading, from settings that were each read a few times.

    Each setting's sample deviation is taken over what its median would be for unit noise (a square root of chi-square),
    so that settings read twice and five times say the same; the median over settings is what is left of odd ones.

    Args:
        cv: sample standard deviation over mean of each setting, (n,).
        repeats: how often each was read, (n,); those read once say nothing.

    Returns:
        Relative standard deviation; NaN where no setting was read twice.
    """
    spread, degrees = np.asarray(cv, dtype=np.float64), np.asarray(repeats, dtype=np.float64) - 1
    spread, degrees = spread[degrees > 0], degrees[degrees > 0]
    if not spread.size:
        return math.nan
    return float(np.median(spread / np.sqrt(chi2.ppf(0.5, degrees) / degrees)))


@dataclass(slots=True)
class NoiseModel:
    """Relative noise from one recording to the next, for what `EmulatedDevice.read` reports.

    The defaults come from the public record (`calibration.extras`): the median standard deviation over the mean of
    1,250 latencies under MPS on a V100 (icloud-ecnu/igniter), and the median scatter of power about a smooth curve over
    neighbouring clocks on an A100 (ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models). A GPU's own recording
    gives others: `heshare.profiles.repeats`.

    Attributes:
        time_cv: standard deviation of a time over the time.
        power_cv: standard deviation of a power over the power.
        rng: where the noise comes from.
    """

    rng: np.random.Generator
    time_cv: float = TIME_CV
    power_cv: float = POWER_CV

    def of(self, label: str) -> NoiseModel:
        """The same noise from a stream that the seed of `rng` and `label` decide, whatever was drawn before.

        Raises:
            InputError: `rng` has no seed.
        """
        seed = self.rng.bit_generator.seed_seq
        if not isinstance(seed, np.random.SeedSequence):
            raise InputError(
                column="rng", found="a generator without a seed", expected="np.random.default_rng(seed)", action="Seed."
            )
        words = np.frombuffer(hashlib.sha256(label.encode()).digest(), dtype="<u4").tolist()
        child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *words))
        return replace(self, rng=np.random.default_rng(child))

    def factor(self, spread: float) -> float:
        """One factor with mean 1 and that relative standard deviation (lognormal, so never negative)."""
        if spread <= 0.0:
            return 1.0
        sigma2 = math.log1p(spread * spread)
        return math.exp(self.rng.normal(-0.5 * sigma2, math.sqrt(sigma2)))
