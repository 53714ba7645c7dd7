"""Audio files: what they are (probe), their samples (decode), and what was measured once and remembered (index)."""
