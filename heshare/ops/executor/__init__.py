"""The executor: jobs on the GPUs of this machine under a policy, in wall time."""
