"""Emulated GPUs: the device model and the devices that answer with it."""
