"""Advice: whether to share a GPU among given workloads, in which way, and with which shares."""
