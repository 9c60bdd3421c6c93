"""Streams to whoever watches: writes that never fail."""
