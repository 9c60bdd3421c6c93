"""Notes on disk of what processes hold: where they run, whether they still run, and the folder of the notes."""
