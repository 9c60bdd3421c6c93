"""mu-Serve (Qiu et al., USENIX ATC 2024)."""
