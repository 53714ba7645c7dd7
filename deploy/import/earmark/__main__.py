"""Run the `earmark` command, for environments whose programs are not on the path: `python -m earmark`."""

from earmark.flows.command.start import main

if __name__ == "__main__":
    main()
