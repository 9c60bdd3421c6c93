"""GPUs of other hosts: who keeps them there, and how they look from the executor."""
