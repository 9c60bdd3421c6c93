"""The worker process: one task on a GPU, `python -m heshare.devices.runner --model resnet50 --batch-size 8 ...`.

It loads, warms up, says that it is ready, waits for the word to go, runs iterations, and tells how many are done and
how long they take, as JSON lines on a pipe of their own. It ends with its parent.
"""
