"""Other ways to share a GPU than MPS: time slices and MIG instances; and training, which runs under all of them."""
