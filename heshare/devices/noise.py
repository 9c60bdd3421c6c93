"""Repeat noise: how far one recording lies from the next."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np

from heshare.errors import InputError


@dataclass(slots=True)
class NoiseModel:
    """Relative noise from one recording to the next, for what `EmulatedDevice.read` reports.

    The defaults come from the public record (`calibration.extras`): the median standard deviation over the mean of
    1,250 latencies under MPS on a V100 (icloud-ecnu/igniter), and the median scatter of power about a smooth curve over
    neighbouring clocks on an A100 (ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models).

    Attributes:
        time_cv: standard deviation of a time over the time.
        power_cv: standard deviation of a power over the power.
        rng: where the noise comes from.
    """

    rng: np.random.Generator
    time_cv: float = 0.0099
    power_cv: float = 0.0036

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
