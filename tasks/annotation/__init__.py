"""The engine that asks models: requests, ledger, pace, backends, provider batches. No Prefect.

Doors: `session.Session` (or `engine.Annotator` inside an event loop) asks; `backend.question` makes a request of a
config, `prompts.load_prompt` its words; `outcome` says how a request ends; `ledger_reports` tells what was asked.
"""
