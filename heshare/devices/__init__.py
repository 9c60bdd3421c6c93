"""Where work runs: the `Device` protocol and the devices that keep it."""
