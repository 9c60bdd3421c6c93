"""The systems, one a file, behind one interface that the event loop drives."""
