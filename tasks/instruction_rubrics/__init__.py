"""Build `instruction-rubrics`: turn captions into samples with items and labels."""
