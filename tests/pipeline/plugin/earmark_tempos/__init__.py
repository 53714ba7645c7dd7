"""A package that adds a corpus: notes on how fast pieces are, with all that belongs to it in this folder."""
