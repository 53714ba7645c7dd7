"""Studies with people: who hears what, the page that asks, and what comes back. No Prefect."""
