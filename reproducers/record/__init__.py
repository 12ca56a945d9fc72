"""The executed notebook as a triage record: written truthfully, read, and checked without running it."""

import sys

# jsonschema would load a grammar of IRIs with it, which takes 3 s, and nothing in a notebook's schema is one
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# before the modules below: it imports the papermill engine among them by its entry point
import papermill  # noqa: E402, F401
