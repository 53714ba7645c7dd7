"""End the process by a signal while modules are still imported."""

import os


def end_at_once(number: int, frame: object) -> None:
    """End the process: there is nothing to keep yet, and Python would print a traceback."""
    os._exit(128 + number)
