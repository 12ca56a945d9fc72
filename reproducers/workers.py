"""What an engine's workers say of their device memory, and work put in flight there, through the worker extension."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from reproducers.calls import answered
from reproducers.client import LifecycleClient
from reproducers.errors import EndpointError
from reproducers.values import Sample

__all__ = ["Armed", "InFlight", "Pages", "TagBytes", "Workers", "over_too_soon"]

Tag = Literal["weights", "kv_cache"]


@dataclass(frozen=True)
class TagBytes:
    """What one tag of the allocator has, over all workers."""

    held: int
    """Bytes that the allocator knows under the tag, mapped or not."""
    mapped: int
    """Bytes of them for which the driver has pages mapped."""


@dataclass(frozen=True)
class Pages:
    """What a tag's mapped pages hold: of so many bytes, how many are of a kind."""

    bytes: int
    zero: int
    byte: int
    """Bytes equal to the one that was asked for."""
    nan: int
    """Bytes that are part of a bfloat16 NaN."""

    def share(self, count: int) -> float:
        """A count as a share of all bytes, 0 to 1; 0 where nothing is mapped."""
        return count / self.bytes if self.bytes else 0.0

    def __str__(self) -> str:
        shares = (
            f"{self.share(self.zero):.1%} zero, {self.share(self.byte):.1%} the mark, {self.share(self.nan):.1%} NaN"
        )
        return f"{self.bytes / 2**20:.0f} MiB mapped: {shares}"


@dataclass(frozen=True)
class Armed:
    """Work that was put in flight on every worker."""

    at: float
    """When the answer came, on the journal's clock: by then the work was queued."""
    seconds: float
    """How long it spins before it touches the pages."""
    working: bool
    """Whether it was in flight on every worker when it had been queued."""


@dataclass(frozen=True)
class InFlight:
    """Whether the work that was put in flight was so at the steps of the sleep that came after it."""

    now: bool
    """When it was asked, on any worker."""
    reached: bool
    """When the sleep reached the worker, on every worker; false as well where none came."""
    unmapped: bool
    """When the first pages were unmapped, on any worker."""


def over_too_soon(armed: Armed | None, work: InFlight | None) -> bool:
    """Whether work that was put in flight was over before the sleep reached the worker, as on a busy host.

    A busy API server was seen to hand a call on 3 to 12 s late. Such a round proves nothing; one with more work may.
    """
    return armed is not None and armed.working and work is not None and not work.reached


class Workers:
    """The worker extension of one engine; sums are over all workers.

    Every method calls `/collective_rpc`, past the scheduler and the sleep state, and raises `EndpointError` where that
    is not answered: the engine is dead, its device is lost, or it was started without the extension.
    """

    def __init__(self, client: LifecycleClient) -> None:
        self._client = client

    def device(self) -> str:
        """`cuda`, `emulated driver`, or `no device memory`."""
        return str(self.ask("repro_device")[0])

    def bytes_by_tag(self) -> dict[str, TagBytes]:
        """Bytes that each tag holds and has mapped; also noted in the journal, for the time line."""
        tags: dict[str, TagBytes] = {}
        for worker in self.ask("repro_bytes_by_tag"):
            for tag, known in worker.items():
                so_far = tags.get(tag, TagBytes(0, 0))
                tags[tag] = TagBytes(so_far.held + known["held"], so_far.mapped + known["mapped"])
        for tag, known in tags.items():
            self._client.journal.add_sample(Sample(self._client.journal.now(), f"{tag} bytes", float(known.mapped)))
        return tags

    def mapped_by_worker(self) -> tuple[int, ...]:
        """Bytes that are mapped now, of each worker."""
        found = self.ask("repro_bytes_by_tag")
        return tuple(sum(int(known["mapped"]) for known in worker.values()) for worker in found)

    def mapped(self, tag: Tag) -> int | None:
        """Bytes of a tag that are mapped now; None where no answer came, as from a lost device."""
        tags = answered(self.bytes_by_tag)
        return None if tags is None else tags.get(tag, TagBytes(0, 0)).mapped

    def note(self) -> None:
        """Note for the time line what is mapped now; nothing where no answer comes."""
        self.mapped("kv_cache")

    def pages(self, tag: Tag, mark: int = 0) -> Pages:
        """What the mapped pages of a tag hold, with the bytes that equal `mark`."""
        found = self.ask("repro_pages", tag, str(mark))
        return Pages(**{name: sum(int(worker[name]) for worker in found) for name in ("bytes", "zero", "byte", "nan")})

    def fill(self, tag: Tag, byte: int) -> int:
        """Set every byte of a tag's mapped pages; return how many there were."""
        return sum(int(worker) for worker in self.ask("repro_poison", tag, str(byte)))

    def arm(self, seconds: float, tag: Tag, access: Literal["read", "write"] = "write") -> Armed:
        """Put work in flight on a side stream: a spin of so many seconds, then a read or write of the tag's pages."""
        found = self.ask("repro_arm", str(seconds), tag, access)
        return Armed(self._client.journal.now(), seconds, all(worker["working"] for worker in found))

    def in_flight(self) -> InFlight | None:
        """Whether that work is in flight now, and was during the sleep; None without an answer, as from a lost device.

        The device is asked by the workers themselves, at the moment of each step: how long calls take proves nothing.
        """
        if (found := answered(lambda: self.ask("repro_working"))) is None:
            return None
        now, unmapped = (any(worker[name] for worker in found) for name in ("now", "unmapped"))
        return InFlight(now, all(worker["reached"] for worker in found), unmapped)

    def set_driver(self, name: str) -> None:
        """Let an emulated driver behave as `scrubs`, `keeps` or `rocm`."""
        self.ask("repro_driver", name)

    def ask(self, method: str, *args: str) -> list[Any]:
        """Call a method of the extension by name; one answer a worker."""
        call, answer = self._client.rpc_results(method, args)
        try:
            return [json.loads(result) for result in answer]
        except (ValueError, TypeError) as error:
            raise EndpointError(f"{call}: {method} answered nothing that can be read") from error
