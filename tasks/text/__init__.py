"""Find personal data and secrets in texts, by a single set of rules for scrubbing and searching."""
