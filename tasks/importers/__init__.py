"""Published layouts in, rows and rejects out: one file per layout, streaming, no Prefect."""
