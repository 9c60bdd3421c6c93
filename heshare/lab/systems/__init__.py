"""The published systems beside HeShare: one package each, with its policy, its models and its study."""
