"""Ask models: requests, ledger, pace, backends, provider batches. No Prefect.

Entry points: `session.Session` (or `engine.Annotator` inside an event loop) asks; `backend.question` builds a request
from a config, `prompts.load_prompt` its text; `outcome` types the results; `ledger_reports` reads a ledger.
"""
