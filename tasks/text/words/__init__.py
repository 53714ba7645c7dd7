"""Hold reviewed lists of words about music: forms of tags, tags asking for voices, everyday words."""
