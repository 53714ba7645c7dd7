"""Voice out, accompaniment stays: files in, files out, by a model or by what a stereo image tells.

`pipeline.separate` takes jobs and a separator and yields one result a job; `choice.make_separator` makes separators.
"""
