"""Read what `/metrics` says about sleep, in the Prometheus text format."""

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["sleep_state"]


def sleep_state(text: str) -> dict[str, float]:
    """Return `vllm:engine_sleep_state` by state; the highest value over all engines of a server.

    The states are `awake`, `weights_offloaded` (level 1) and `discard_all` (level 2). Empty where the release has no
    such metric.
    """
    states: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        if family.name == "vllm:engine_sleep_state":
            for sample in family.samples:
                state = sample.labels["sleep_state"]
                states[state] = max(states.get(state, 0.0), sample.value)
    return states
