"""Start the `earmark` command: a signal ends it in order while its modules are still imported."""

import signal

from earmark.flows.command.signals import end_at_once


def main() -> None:
    """Run the command."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # jobs in the background ignore Ctrl-C
            signal.signal(number, end_at_once)
    from earmark.flows.command.cli import main as run

    run()
