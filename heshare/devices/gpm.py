"""GPM metrics: how busy the SMs and the memory were between two readings, where the card tells (Hopper and later)."""

from __future__ import annotations

import math
import time
from typing import Any

from heshare.devices.faults import NotSupportedError, fault, no_reading
from heshare.devices.nvml import Card, ask


class Gpm:
    """GPM metrics between one reading and the next: SM activity and DRAM bandwidth, % (Hopper and later).

    Args:
        card: a card that `has_gpm`.

    Raises:
        NvmlError: the card refuses a sample.
    """

    LEAST_S = 0.1

    def __init__(self, card: Card) -> None:
        self._nvml, self._card = card.binding, card
        self._last = self._sample()
        self._last_s = time.monotonic()
        self._values = (math.nan, math.nan)

    def read(self) -> tuple[float, float]:
        """SM activity and DRAM bandwidth since the last reading that was at least `LEAST_S` ago, %; NaN before it."""
        if time.monotonic() - self._last_s >= self.LEAST_S:
            now = self._sample()
            try:
                self._values = self._between(self._last, now)
            finally:
                self._free(self._last)
                self._last, self._last_s = now, time.monotonic()
        return self._values

    def close(self) -> None:
        """Give the sample's memory back. May be repeated."""
        if self._last is not None:
            self._free(self._last)
            self._last = None

    def _sample(self) -> Any:
        sample = ask(self._nvml, self._card.label, "nvmlGpmSampleAlloc")
        try:
            self._card.ask("nvmlGpmSampleGet", sample)
        except BaseException:
            self._free(sample)
            raise
        return sample

    def _between(self, first: Any, second: Any) -> tuple[float, float]:
        nvml, call = self._nvml, "nvmlGpmMetricsGet"
        wanted = nvml.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
        wanted.sample1, wanted.sample2 = first, second
        wanted.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        wanted.metrics[1].metricId = nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
        ask(nvml, self._card.label, call, wanted)
        return self._percent(wanted.metrics[0]), self._percent(wanted.metrics[1])

    def _percent(self, metric: Any) -> float:
        call = f"nvmlGpmMetricsGet({metric.metricId})"
        if metric.nvmlReturn != self._nvml.NVML_SUCCESS:
            error = fault(self._card.label, call, metric.nvmlReturn)
            if isinstance(error, NotSupportedError):
                return math.nan
            raise error
        if math.isnan(metric.value):
            return math.nan
        if not 0 <= metric.value <= 101:
            raise no_reading(self._card.label, call, metric.value, "a percentage")
        return float(min(metric.value, 100.0))

    def _free(self, sample: Any) -> None:
        try:
            self._nvml.nvmlGpmSampleFree(sample)
        except self._nvml.NVMLError:
            return
