"""Studies of the published systems: each one of its own experiments, repeated on this platform."""
