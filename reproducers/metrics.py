"""Read what `/metrics` says about sleep and KV offload, in the Prometheus text format."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Operations", "offloaded_bytes", "sleep_operations", "sleep_state"]

DURATION = "vllm:sleep_mode_operation_duration_seconds"
IN_FLIGHT = "vllm:sleep_mode_operations_in_flight"


@dataclass(frozen=True)
class Operations:
    """What the metrics say of one kind of sleep-mode operation: `sleep`, `wake` or `release_kv_cache_memory`."""

    count: int = 0
    """How many have ended."""
    seconds: float = 0.0
    """How long they took together."""
    in_flight: int = 0
    """How many are awaited now."""


def sleep_operations(text: str, operation: str) -> Operations:
    """Return what the metrics say of an operation so far (0.32.0 and later); zeros before its first one."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("operation") == operation:
                found[sample.name] = sample.value
    count, seconds, in_flight = (found.get(name, 0) for name in (f"{DURATION}_count", f"{DURATION}_sum", IN_FLIGHT))
    return Operations(int(count), float(seconds), int(in_flight))


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
