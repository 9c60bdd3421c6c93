"""Health of a card: Xid errors (NVML events) and ECC and row-remapping counters, and which of them drain it.

The actions are those of NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors, "Resolution Bucket (Immediate
Action)"; for Ampere and later, older cards use the same numbers).
"""

import time
from contextlib import suppress
from typing import Any

from heshare.ops.nvml.binding import NotSupportedError, NvmlError, NvmlGpu, call_nvml, fault

COUNTERS_S = 10.0
"""Interval at which the counters of uncorrected errors are read, s."""

# The catalogue's action is RESTART_APP (or WORKFLOW_XID_45): the application has to be restarted, the card is usable.
_OF_APPLICATIONS = (
    8, 11, 13, 25, 31, 32, 39, 40, 41, 45, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 94,
    *range(96, 106), *range(126, 136), 139,
)  # fmt: skip
# The catalogue's action is IGNORE, or the event is informational (154 repeats the action of another Xid).
_INFORMING = (
    14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 154, 157, 160, 161,
    162, 163, 164, 165,
)  # fmt: skip
HARMLESS_XIDS = frozenset(_OF_APPLICATIONS + _INFORMING)
"""Xids that do not drain a card. All others do, unknown ones included: the card must be reset or checked."""

_TITLES = {
    13: "graphics engine exception, as a rule an application's error",
    31: "memory page fault, as a rule an application's error",
    43: "GPU stopped processing, an application's error",
    45: "an application was torn down",
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    63: "a memory row or page was retired",
    64: "a memory row or page could not be retired",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    119: "GSP timeout",
    120: "GSP error",
    140: "ECC error that was not recovered",
    143: "GPU initialisation error",
}
_XID, _DOUBLE_BIT = 8, 2  # nvmlEventTypeXidCriticalError, nvmlEventTypeDoubleBitEccError
_TIMEOUT = 10
_MOST_EVENTS = 64


def xid_text(number: int) -> str:
    return f"Xid {number} ({_TITLES[number]})" if number in _TITLES else f"Xid {number}"


class CardHealth:
    """The errors of a card since the creation of this object."""

    def __init__(self, card: NvmlGpu) -> None:
        self._card, self._nvml = card, card.binding
        self._set: Any = None
        with suppress(NvmlError):
            self._set = self._registered()
        try:
            self._counters = self._read_counters()
        except NvmlError:
            self.close()
            raise
        self._counters_s = time.monotonic()

    def read(self) -> tuple[tuple[bool, str], ...]:
        """Return the errors since the last call: whether each drains the card, and its text."""
        found = list(self._events())
        if time.monotonic() - self._counters_s >= COUNTERS_S:
            self._counters_s, before = time.monotonic(), self._counters
            self._counters = after = self._read_counters()
            if before[0] is not None and after[0] is not None and after[0] > before[0]:
                found.append((True, f"{after[0] - before[0]} uncorrected ECC errors"))
            if after[1] and not before[1]:
                found.append((True, "a memory row could not be remapped"))
        return tuple(found)

    def close(self) -> None:
        if self._set is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._set)
            self._set = None

    def _registered(self) -> Any:
        supported = int(self._card.call("nvmlDeviceGetSupportedEventTypes")) & (_XID | _DOUBLE_BIT)
        if not supported:
            return None
        events = call_nvml(self._nvml, self._card.label, "nvmlEventSetCreate")
        try:
            self._card.call("nvmlDeviceRegisterEvents", supported, events)
        except NvmlError:
            self._nvml.nvmlEventSetFree(events)
            raise
        return events

    def _events(self) -> list[tuple[bool, str]]:
        found: list[tuple[bool, str]] = []
        while self._set is not None and len(found) < _MOST_EVENTS:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError as error:
                if error.value == _TIMEOUT:
                    break
                raise fault(self._card.label, "nvmlEventSetWait_v2", error.value) from error
            if event.eventType == _XID:
                found.append((event.eventData not in HARMLESS_XIDS, xid_text(int(event.eventData))))
            else:
                found.append((True, "double-bit ECC error"))
        return found

    def _read_counters(self) -> tuple[int | None, bool]:
        uncorrected = None
        with suppress(NotSupportedError):
            uncorrected = int(
                self._card.call(
                    "nvmlDeviceGetTotalEccErrors",
                    self._nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                    self._nvml.NVML_VOLATILE_ECC,
                )
            )
        return uncorrected, self._card.remap_failed()
