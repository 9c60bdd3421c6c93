"""A GPU kernel by kernel: traces of single kernels, and exact loops over them for each way of sharing."""
