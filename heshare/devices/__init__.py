"""Devices: GPUs that run tasks. The `Device` protocol, the device model, and emulated GPUs."""

import heshare.devices.derived_constants  # noqa: F401, registers what `default` completes the constants with
