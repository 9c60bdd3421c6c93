"""The worker process: one task on a GPU, `python -m heshare.gpu.worker_program --model resnet50 --batch-size 8`."""
