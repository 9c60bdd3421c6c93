"""Fits of what co-runners cost: contention within 100 % of shares, and turns on an oversubscribed GPU."""
