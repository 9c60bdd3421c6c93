"""What systems that allocate GPUs share: blocks of GPUs, fitted models, marginal moves, histories of shared GPUs."""
