"""Host names become checked addresses, or an error that says why not."""

import asyncio
import socket
import sys
import threading

import anyio
import pytest

from openclaw_a2a.net.safe_resolver import (
    AddressNotAllowed,
    HostNotFound,
    HostResolver,
    find_addresses,
)

LIMIT_S = 240.0


async def to_private(host: str, port: int) -> list[str]:
    return ["93.184.216.34", "10.0.0.1"]


async def to_nothing(host: str, port: int) -> list[str]:
    return []


async def test_a_host_with_one_private_address_is_not_allowed() -> None:
    with pytest.raises(AddressNotAllowed, match=r"a\.example leads into a private network"):
        await find_addresses("a.example", 80, resolve=to_private, allow_private=False)
    found = await find_addresses("a.example", 80, resolve=to_private, allow_private=True)
    assert found == ["93.184.216.34", "10.0.0.1"]


async def test_an_address_is_checked_without_a_lookup() -> None:
    with pytest.raises(AddressNotAllowed):
        await find_addresses("127.0.0.1", 80, resolve=to_nothing, allow_private=False)
    assert await find_addresses("::1", 80, resolve=to_nothing, allow_private=True) == ["::1"]


@pytest.mark.parametrize("name", ["no-such-host.invalid", f"{'a' * 70}.example"])
async def test_an_unknown_host_is_not_found(name: str) -> None:
    with pytest.raises(HostNotFound, match=f"{name} is not known"):
        await find_addresses(name, 80, resolve=HostResolver(1), allow_private=True)


async def test_a_host_without_addresses_is_not_found() -> None:
    with pytest.raises(HostNotFound, match=r"a\.example has no address"):
        await find_addresses("a.example", 80, resolve=to_nothing, allow_private=True)


async def test_a_host_of_this_machine_is_found() -> None:
    assert "127.0.0.1" in await HostResolver(1)("localhost", 80)


ENDLESS = """
import asyncio, socket, threading
from openclaw_a2a.net.safe_resolver import HostResolver

socket.getaddrinfo = lambda *_, **__: threading.Event().wait()

async def look_up():
    async with asyncio.timeout(0.05):
        await HostResolver(1)("hooks.example.com", 80)

asyncio.run(look_up())
"""


async def test_a_lookup_that_never_ends_does_not_keep_the_process_alive() -> None:
    with anyio.fail_after(LIMIT_S):
        ended = await anyio.run_process([sys.executable, "-c", ENDLESS], check=False)
    assert b"TimeoutError" in ended.stderr


async def test_lookups_without_an_answer_take_no_more_than_twice_the_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end, begun, looked_up = threading.Event(), threading.Semaphore(0), list[str]()

    def find(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        looked_up.append(host)
        begun.release()
        if host != "known":
            may_end.wait(LIMIT_S)
        return [(2, 1, 6, "", ("192.0.2.1", port))]

    async def abandon(name: str) -> None:
        waiting = asyncio.ensure_future(resolver(name, 80))
        assert await asyncio.to_thread(begun.acquire, timeout=LIMIT_S)
        waiting.cancel()
        await asyncio.wait({waiting})

    monkeypatch.setattr(socket, "getaddrinfo", find)
    resolver = HostResolver(2)
    await abandon("a")
    await abandon("b")
    # Names that get no answer do not keep those from being looked up that get one.
    assert await resolver("known", 80) == ["192.0.2.1"]
    assert begun.acquire(timeout=LIMIT_S)
    await abandon("c")
    await abandon("d")
    last = asyncio.ensure_future(resolver("e", 80))
    await asyncio.sleep(0)
    assert looked_up == ["a", "b", "known", "c", "d"]
    may_end.set()
    assert await last == ["192.0.2.1"]


async def test_lookups_of_one_caller_leave_threads_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end, waiting = threading.Event(), threading.Barrier(2)

    def find(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if host == "slow":
            waiting.wait(LIMIT_S)
            may_end.wait(LIMIT_S)
        return [(2, 1, 6, "", ("192.0.2.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", find)
    resolver = HostResolver(2, each=1)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(resolver.of_caller("eve")("slow", 80))
        await asyncio.to_thread(waiting.wait, LIMIT_S)
        second = tasks.create_task(resolver.of_caller("eve")("other", 80))
        assert await resolver.of_caller("alice")("known", 80) == ["192.0.2.1"]
        assert not first.done() and not second.done()
        may_end.set()
