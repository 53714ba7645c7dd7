"""Name the place of what was here: plug-ins and logging configs of 1.0 import from `earmark.tasks.build`."""

raise ImportError(f"{__name__} is earmark.tasks.pipeline now; plug-ins import what they need from earmark.plugins")
