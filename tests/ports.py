"""Ports for processes that are started by tests: each belongs to one test worker."""

import random
import socket

_BELOW_THOSE_OF_CLIENTS = range(20_000, 32_000)
"""A system gives none of these to connections, nor to servers that take any port."""

_PER_WORKER = 300

_random = random.SystemRandom()  # seeds of tests are the same in every worker


class _Ports:
    """A range of ports that no other process gives away as long as this one lives.

    A port that is free now is not enough: between this moment and the one when the started
    program listens, or while a gateway is stopped and started again, another test would come to
    have it, and one of the two would talk to the other's gateway.
    """

    def __init__(self) -> None:
        starts = list(_BELOW_THOSE_OF_CLIENTS[::_PER_WORKER])
        _random.shuffle(starts)
        for start in starts:
            self._claim = socket.socket()
            try:
                self._claim.bind(("127.0.0.1", start))  # kept: it says that the range is taken
            except OSError:
                self._claim.close()
                continue
            self._ports = range(start + 1, start + _PER_WORKER)
            self._next = 0
            return
        raise OSError("every range of ports for tests is taken")

    def free_port(self) -> int:
        for _ in self._ports:
            port = self._ports[self._next]
            self._next = (self._next + 1) % len(self._ports)
            if _is_free(port):
                return port
        raise OSError(f"all ports of {self._ports} are in use")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            return False
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_ports: list[_Ports] = []


def free_port() -> int:
    """A port that nobody uses now, and that nobody comes to have by chance before it is used."""
    if not _ports:
        _ports.append(_Ports())
    return _ports[0].free_port()
