"""The published systems other than HeShare: one package each, with its policy and its models."""
