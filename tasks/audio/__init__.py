"""Probe audio files, decode their samples, and cache measurements (index)."""
