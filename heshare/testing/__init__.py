"""Kits for those who add a device or a policy: subclass a contract, give it your fixture, run pytest."""
