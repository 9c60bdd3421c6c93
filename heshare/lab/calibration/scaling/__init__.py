"""Laws by which GPUs and networks without measurements are scaled, fitted to records that compare several."""
