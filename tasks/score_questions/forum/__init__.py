"""A forum's dump in, threads without names and their images out, with every dropped one accounted for. No Prefect."""
