"""Finds the addresses of a host, and allows only those that may be connected to.

A caller that names a host makes this gateway connect to it from inside the operator's network. A
name that was harmless when it was given may resolve to any address later. So it is resolved for
every connection, every address is checked, and the connection uses a checked address.
"""

import ipaddress
import socket
from collections.abc import Awaitable, Callable

from openclaw_a2a.engine.scheduling.threads import DaemonThreads
from openclaw_a2a.model.url_policy import is_public_address

ResolveHost = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host and port. Raises: OSError."""

FindAddresses = Callable[[str, int], Awaitable[list[str]]]
"""The addresses to connect to for a host and port. Raises: HostNotFound, AddressNotAllowed."""

_MAX_ADDRESSES = 4


class HostNotFound(Exception):
    """The host has no address."""


class AddressNotAllowed(Exception):
    """The host leads into a private network, which is not allowed."""


class HostResolver:
    """Resolves names in threads of its own, at most `parallel` at a time, `each` for one caller.

    A look-up cannot be cancelled: a caller that stops waiting leaves its thread behind.
    """

    def __init__(self, parallel: int, *, each: int | None = None) -> None:
        self._threads = DaemonThreads(parallel, each=each or parallel)

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses of a host, best first. Raises: OSError."""
        return await self._threads.run("", lambda: _resolve(host, port))

    def of_caller(self, name: str) -> ResolveHost:
        """The same, in the share of one caller."""
        return lambda host, port: self._threads.run(name, lambda: _resolve(host, port))


def _resolve(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError:  # not a valid name
        raise OSError from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


async def find_addresses(
    host: str, port: int, *, resolve: ResolveHost, allow_private: bool
) -> list[str]:
    """The addresses to connect to, all of them checked.

    Raises: HostNotFound, AddressNotAllowed.
    """
    try:
        ipaddress.ip_address(host)
        addresses = [host]
    except ValueError:
        try:
            addresses = await resolve(host, port)
        except OSError as error:
            raise HostNotFound(
                f"{host} is not known: {error.strerror or 'no such name'}"
            ) from error
    if not addresses:
        raise HostNotFound(f"{host} has no address")
    if not allow_private and not all(map(is_public_address, addresses)):
        # One private address is enough to refuse: mixed answers are an attempt to pass the check.
        raise AddressNotAllowed(f"{host} leads into a private network, which is not allowed")
    return addresses[:_MAX_ADDRESSES]
