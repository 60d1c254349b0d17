"""Access without a token: from this machine only."""

from dataclasses import dataclass, field

import pytest

from openclaw_a2a.auth.request_origin import is_loopback_client


@dataclass
class FakeRequest:
    client: str | None
    headers: dict[bytes, bytes] = field(default_factory=dict)

    def client_host(self) -> str | None:
        return self.client

    def server_port(self) -> int | None:
        return 9900


@pytest.mark.parametrize(
    ("client", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("localhost", True),
        ("192.0.2.7", False),
        ("testclient", False),
        ("/run/gateway.sock", False),
        ("", False),
        (None, False),
    ],
)
def test_only_a_known_loopback_address_is_local(client: str | None, is_local: bool) -> None:
    assert is_loopback_client(FakeRequest(client)) is is_local
