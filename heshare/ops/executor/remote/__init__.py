"""GPUs of other hosts, through Dask."""
