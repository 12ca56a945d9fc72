"""The judges, one module a bug: pure functions from observations to a verdict."""
