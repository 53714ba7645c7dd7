"""Read published layouts into rows and rejects: a file per layout, streaming, without Prefect."""
