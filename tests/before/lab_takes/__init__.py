"""A plug-in as a lab wrote it for the release: a corpus that measures takes, and a layout of ratings.

It stays as it is: what it imports is what plug-ins may rely on.
"""
