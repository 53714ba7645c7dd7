"""Run studies with people: assign clips, write pages, read answers. No Prefect."""
