"""Drills: parts of runs killed (-9) at random moments, over stand-ins for NVML and MPS."""
