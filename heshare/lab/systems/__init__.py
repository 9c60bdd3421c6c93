"""The published systems beside HeShare: one package each, with its policy and its models."""
