"""Validation of input: CSV tables, and upper bounds of sizes and times."""
