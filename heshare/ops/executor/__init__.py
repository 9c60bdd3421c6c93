"""The executor: jobs on real GPUs of this machine or of several under a policy, with locks and a watchdog."""
