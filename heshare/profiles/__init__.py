"""Profiles: measurements of workloads on GPUs, their schema and files, the recorder, and the replay device."""
