"""Which webhooks may be called: checked by name when given, and by address when connected to.

A caller names the address that this gateway will connect to, from inside the operator's network.
A name that looked harmless when it was registered may lead anywhere later, so the address is
looked up here for each connection, every answer is checked, and the connection goes to what was
checked.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Thread
from urllib.parse import urlsplit

from openclaw_a2a.model.links import why_not_public
from openclaw_a2a.ports import Missed

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host. Raises: OSError."""

_MOST_TRIED = 4
_CHARACTERS = re.compile(r"[!-\[\]-~]+")
_EMBEDDED_V4 = (
    ipaddress.ip_network("64:ff9b::/96"),  # translated by a gateway on the way
    ipaddress.ip_network("::/96"),
)
_OPEN_V6 = ipaddress.ip_network("2000::/3")
"""The only IPv6 addresses given to the open internet: what else there is leads somewhere near."""
_PROTOCOLS_V4 = ipaddress.ip_network("192.0.0.0/24")


def why_not_a_webhook(url: str, *, allow_private: bool) -> str | None:
    """Why an address cannot be a webhook; None when it may be one, as far as its text tells."""
    if not _CHARACTERS.fullmatch(url):
        return "must be an address in ASCII without spaces and backslashes"
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        return "is not an address"
    if parts.scheme not in ("http", "https") or not host:
        return "must be an http or https address"
    if "@" in parts.netloc:
        return "must not hold a user name or password; give them as authentication"
    reason = None if allow_private else why_not_public(url)
    return reason and f"{reason}; a webhook must be at a public address"


def is_public(address: str) -> bool:
    """True when an IP address is one of the open internet."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    embedded = _embedded(parsed)
    if embedded is not None:
        return is_public(str(embedded))
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed in _OPEN_V6 and parsed.is_global
    return parsed.is_global and not parsed.is_multicast and parsed not in _PROTOCOLS_V4


def _embedded(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address is only another spelling of, or a tunnel to."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    tunnel = address.teredo[1] if address.teredo else None
    known = address.ipv4_mapped or address.sixtofour or tunnel
    if known is None and any(address in network for network in _EMBEDDED_V4):
        known = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return known


class Resolver:
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

        Thread(target=look_up, name="webhook-look-up", daemon=True).start()
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
    host: str, port: int, *, resolve: Resolve, allow_private: bool
) -> list[str] | Missed:
    """The addresses to connect to, all of them checked; or why there are none."""
    try:
        ipaddress.ip_address(host)
        addresses = [host]
    except ValueError:
        try:
            addresses = await resolve(host, port)
        except OSError as error:
            return Missed(f"{host} is not known: {error.strerror or 'no such name'}")
    if not addresses:
        return Missed(f"{host} has no address")
    if not allow_private and not all(map(is_public, addresses)):
        # Not even when others are public: a name that mixes them is made to slip through.
        return Missed(f"{host} leads into a private network, which is not allowed", is_final=True)
    return addresses[:_MOST_TRIED]
