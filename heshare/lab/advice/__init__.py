"""Advice: whether sharing a GPU pays for given workloads, in which way, and with which shares."""
