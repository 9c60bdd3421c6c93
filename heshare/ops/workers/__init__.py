"""Worker processes on a real GPU, seen from their parent."""
