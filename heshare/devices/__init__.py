"""Devices: GPUs that run tasks. The `Device` protocol, the device model, and emulated GPUs."""
