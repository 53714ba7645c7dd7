"""`instruction-rubrics`: from captions to samples with items and labels."""
