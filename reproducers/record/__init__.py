"""The executed notebook as a triage record: written truthfully, read, and checked without running it."""

import papermill  # noqa: F401  before the modules below: it imports the papermill engine among them by its entry point
