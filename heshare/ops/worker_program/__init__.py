"""The worker process, `python -m heshare.ops.worker_program`: tasks on a GPU, one after the other."""
