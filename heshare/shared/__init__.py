"""Pieces that every module may import: errors, files, tables, caches, journals, processes."""
