"""FIFO with packing and Gandiva, as Gavel's simulator defines them."""
