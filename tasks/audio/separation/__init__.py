"""Remove the voice from tracks, file by file, by a model or by the stereo image. `pipeline.separate` takes jobs and a
separator and yields a result for each job; `choice.make_separator` makes separators."""
