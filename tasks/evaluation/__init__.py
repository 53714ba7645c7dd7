"""Models measured: asked about samples with known answers, or scored elsewhere; what comes of it is counted."""
