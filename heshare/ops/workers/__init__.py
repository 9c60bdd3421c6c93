"""The parent's side of worker processes on a real GPU: launcher, pool, supervisor."""
