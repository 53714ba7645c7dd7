"""Measure models on samples with known answers, asked here or scored elsewhere."""
