"""The model of the driver: what it answers to each call, with the driver's codes."""

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "reproducers" / "inside" / "plugin"))

import vllm_rl_repro_driver_model as model  # type: ignore[import-not-found]

SIZE = 2 * model.GRANULARITY


def mapped(driver: Any) -> tuple[int, int]:
    """One allocation: its address and its handle."""
    address, handle = driver.reserve(SIZE), driver.create(SIZE)
    driver.map(address, handle)
    return address, handle


def code_of(call: Callable[[], object]) -> int:
    with pytest.raises(model.DriverError) as caught:
        call()
    return int(caught.value.code)


def test_mapped_memory_is_real_and_counted() -> None:
    driver = model.Driver(total=8 * SIZE)
    address, _ = mapped(driver)
    driver.fill(address, 0x5A, SIZE)
    assert ctypes.string_at(address + SIZE - 1, 1) == b"\x5a"
    assert driver.info() == (7 * SIZE, 8 * SIZE)
    assert driver.mapped(address)


def test_releasing_twice_unmapping_twice_and_mapping_twice_are_refused() -> None:
    driver = model.Driver(total=8 * SIZE)
    address, handle = mapped(driver)
    assert code_of(lambda: driver.map(address, handle)) == model.ALREADY_MAPPED
    driver.unmap(address)
    assert code_of(lambda: driver.unmap(address)) == model.INVALID_VALUE
    driver.release(handle)
    assert code_of(lambda: driver.release(handle)) == model.INVALID_VALUE
    assert code_of(lambda: driver.map(address, handle)) == model.INVALID_VALUE
    assert code_of(lambda: driver.copy(address, address, 1)) == model.INVALID_VALUE
    driver.free_reservation(address)
    assert code_of(lambda: driver.free_reservation(address)) == model.INVALID_VALUE
    assert code_of(lambda: model.Driver(total=SIZE).create(2 * SIZE)) == model.OUT_OF_MEMORY


@pytest.mark.parametrize(("scrubs", "first"), [(True, b"\0"), (False, b"\x5a")])
def test_pages_come_back_zeroed_or_with_old_bytes(scrubs: bool, first: bytes) -> None:
    driver = model.Driver(total=8 * SIZE, scrubs=scrubs)
    address, handle = mapped(driver)
    driver.fill(address, 0x5A, SIZE)
    driver.unmap(address)
    driver.release(handle)
    driver.map(address, driver.create(SIZE))
    assert ctypes.string_at(address, 1) == first


def test_work_in_flight_over_pages_that_are_unmapped_loses_the_context() -> None:
    driver = model.Driver(total=8 * SIZE)
    address, handle = mapped(driver)
    driver.put_in_flight(0.1, address, SIZE)
    driver.unmap(address)  # answers at once
    driver.release(handle)
    assert driver.working()
    assert code_of(driver.synchronize) == model.ILLEGAL_ADDRESS
    assert code_of(lambda: driver.create(SIZE)) == model.ILLEGAL_ADDRESS  # and so does every call from here on


def test_synchronize_waits_for_work_in_flight_which_then_harms_nothing() -> None:
    driver = model.Driver(total=8 * SIZE)
    address, _ = mapped(driver)
    driver.fill(address, 7, SIZE)
    driver.put_in_flight(0.2, address, SIZE)
    began = time.monotonic()
    driver.synchronize()
    assert time.monotonic() - began >= 0.2
    assert not driver.working()
    driver.unmap(address)


def test_a_kernel_over_unmapped_pages_loses_the_context() -> None:
    driver = model.Driver(total=8 * SIZE)
    address, _ = mapped(driver)
    driver.touch(address, SIZE)
    driver.unmap(address)
    assert code_of(lambda: driver.touch(address, SIZE)) == model.ILLEGAL_ADDRESS
    assert code_of(driver.info) == model.ILLEGAL_ADDRESS
