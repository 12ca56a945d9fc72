"""Read what `/metrics` says about sleep and KV offload, in the Prometheus text format."""

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["offloaded_bytes", "sleep_state"]


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


def offloaded_bytes(text: str) -> float | None:
    """Return how many bytes of KV cache were moved to the host so far; None where the release does not tell.

    The counter is `vllm:kv_offload_store_bytes`; before that `vllm:kv_offload_total_bytes` by direction.
    """
    stored, moved = [], []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("vllm:kv_offload_store_bytes") and not sample.name.endswith("_created"):
                stored.append(sample.value)
            elif sample.name.startswith("vllm:kv_offload_total_bytes") and not sample.name.endswith("_created"):
                moved += [sample.value] if "to_cpu" in str(sample.labels).lower() else []
    return sum(stored or moved) if stored or moved else None
