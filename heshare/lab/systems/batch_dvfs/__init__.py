"""BatchDVFS (Nabavinejad et al., IEEE TPDS 2022)."""
