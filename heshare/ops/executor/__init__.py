"""The executor: jobs on real GPUs under a policy, with locks, a journal and a watchdog."""
