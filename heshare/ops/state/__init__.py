"""State files: records on disk of the GPU settings that a process has changed, for cleanup after a crash."""
