"""The worker process, `python -m heshare.gpu.worker_program`: tasks on a GPU, one after the other."""
