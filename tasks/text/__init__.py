"""What texts hold that leads to a person, or opens a door: one set of rules for all that scrubs or searches."""
