"""Repeat noise: random differences between one recording and the next."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from heshare.shared.errors import InputError

TIME_CV, POWER_CV = 0.0099, 0.0036
"""Relative standard deviations of the noise in the public record, of a time and of a power."""
_Entropy = int | tuple[int, ...] | None


def repeat_cv(cv: ArrayLike, repeats: ArrayLike) -> float:
    """Return the relative standard deviation of one reading, from settings that were each read a few times.

    The sample deviation of each setting is divided by its median for unit noise, the square root of the median of
    chi-square over its degrees of freedom, so that settings read twice and five times agree. The median over settings
    is robust against outliers. NaN where no setting was read twice. `cv` is the sample standard deviation over the mean
    of each setting, `repeats` how often it was read; both are (n,).
    """
    spread, degrees = np.asarray(cv, dtype=np.float64), np.asarray(repeats, dtype=np.float64) - 1
    spread, degrees = spread[degrees > 0], degrees[degrees > 0]
    if not spread.size:
        return math.nan
    from scipy.stats import chi2  # slow to import

    return float(np.median(spread / np.sqrt(chi2.ppf(0.5, degrees) / degrees)))


@dataclass(slots=True)
class NoiseModel:
    """Relative noise from one recording to the next, for the readings of an `EmulatedDevice`.

    The defaults come from the public record: the median standard deviation over the mean of
    1,250 latencies under MPS on a V100 (icloud-ecnu/igniter), and the median scatter of power about a smooth curve over
    neighbouring clocks on an A100 (ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models). A GPU's own recording
    gives others: `heshare.ops.recording.regenerate_profiles`.

    Attributes:
        time_cv: standard deviation of a time over the time.
        power_cv: standard deviation of a power over the power.
        rng: the source of randomness.
    """

    rng: np.random.Generator
    time_cv: float = TIME_CV
    power_cv: float = POWER_CV

    def of(self, label: str) -> NoiseModel:
        """Return the same noise from a stream that the seed of `rng` and `label` alone determine."""
        return replace(self, rng=np.random.default_rng(_stream(*self._seed(), (label,))))

    def constant_factor(self, recording: str, name: str, spread: float) -> float:
        """Return `of(recording).of(name).factor(spread)`, cached for devices that record the same settings."""
        return _constant_factor(*self._seed(), (recording, name), spread)

    def _seed(self) -> tuple[_Entropy, tuple[int, ...]]:
        seed = self.rng.bit_generator.seed_seq
        if not isinstance(seed, np.random.SeedSequence):
            raise InputError("a generator without a seed", "np.random.default_rng(seed)", "Seed.", column="rng")
        return tuple(seed.entropy) if isinstance(seed.entropy, Sequence) else seed.entropy, seed.spawn_key

    def factor(self, spread: float) -> float:
        """Return a lognormal factor with mean 1 and this relative standard deviation."""
        if spread <= 0.0:
            return 1.0
        sigma2 = math.log1p(spread * spread)
        return math.exp(self.rng.normal(-0.5 * sigma2, math.sqrt(sigma2)))


def _stream(entropy: _Entropy, spawn_key: tuple[int, ...], names: tuple[str, ...]) -> np.random.SeedSequence:
    for name in names:
        spawn_key += tuple(np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype="<u4").tolist())
    return np.random.SeedSequence(entropy, spawn_key=spawn_key)


@lru_cache(maxsize=2**16)
def _constant_factor(entropy: _Entropy, spawn_key: tuple[int, ...], names: tuple[str, ...], spread: float) -> float:
    # The first factor of the stream that a seed and names determine.
    return NoiseModel(np.random.default_rng(_stream(entropy, spawn_key, names))).factor(spread)
