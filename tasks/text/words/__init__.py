"""Reviewed lists of words about music, kept as data: how tags are written, which ask for voices, which are everyday."""
