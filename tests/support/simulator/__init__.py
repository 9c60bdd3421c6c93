"""Simulated runs: the real executor with real files, on a machine in virtual time that fails as a seed says."""
