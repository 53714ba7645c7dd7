"""The words that are sent to models: one Markdown file a prompt, and the lock that holds their hashes."""
