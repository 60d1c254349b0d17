"""Ports for processes that are started by tests."""

import random
import socket

_BELOW_THOSE_OF_CLIENTS = range(20_000, 32_000)
"""A system gives none of these to connections, nor to servers that take any port."""

_random = random.SystemRandom()  # seeds of tests are the same in every worker


def free_port() -> int:
    """A port that nobody uses now, and that nobody comes to have by chance before it is used."""
    while True:
        port = _random.choice(_BELOW_THOSE_OF_CLIENTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
