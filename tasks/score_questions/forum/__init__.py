"""Turn a forum's dump into anonymous threads with images, accounting for every dropped one; no Prefect."""
