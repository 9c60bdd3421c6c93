"""EaCO (Haghshenas and Hashemi, 2024)."""
