"""Looks up where a name leads, and hands out only addresses that may be connected to.

Whoever names an address lets this gateway connect to it from inside the operator's network. A name
that looked harmless when it was given may lead anywhere later, so it is looked up here for each
connection, every answer is checked, and the connection goes to what was checked.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Thread

from openclaw_a2a.model.url_policy import is_public_address
from openclaw_a2a.ports import DeliveryFailed

ResolveHost = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host. Raises: OSError."""

_MOST_TRIED = 4


class HostResolver:
    """Looks names up in threads of its own, so that slow ones delay nobody else.

    A look-up cannot be broken off. Whoever stops waiting leaves its thread behind: it keeps its
    place until it ends, and does not keep the process from ending.
    """

    def __init__(self, parallel: int) -> None:
        self._places = asyncio.Semaphore(parallel)

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses of a host, best first. Raises: OSError."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str] | OSError] = loop.create_future()

        def look_up() -> None:
            found = _look_up(host, port)
            with suppress(RuntimeError):  # the gateway is gone
                loop.call_soon_threadsafe(self._tell, answer, found)

        Thread(target=look_up, name="look-up", daemon=True).start()
        found = await answer
        if isinstance(found, OSError):
            raise found
        return found

    def _tell(
        self, answer: "asyncio.Future[list[str] | OSError]", found: list[str] | OSError
    ) -> None:
        self._places.release()
        if not answer.done():
            answer.set_result(found)


def _look_up(host: str, port: int) -> list[str] | OSError:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except ValueError:  # it cannot be a name
        return OSError()
    return list(dict.fromkeys(str(one[4][0]) for one in found))


async def find_addresses(
    host: str, port: int, *, resolve: ResolveHost, allow_private: bool
) -> list[str] | DeliveryFailed:
    """The addresses to connect to, all of them checked; or why there are none."""
    try:
        ipaddress.ip_address(host)
        addresses = [host]
    except ValueError:
        try:
            addresses = await resolve(host, port)
        except OSError as error:
            return DeliveryFailed(f"{host} is not known: {error.strerror or 'no such name'}")
    if not addresses:
        return DeliveryFailed(f"{host} has no address")
    if not allow_private and not all(map(is_public_address, addresses)):
        # Not even when others are public: a name that mixes them is made to slip through.
        return DeliveryFailed(
            f"{host} leads into a private network, which is not allowed", is_final=True
        )
    return addresses[:_MOST_TRIED]
