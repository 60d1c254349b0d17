"""Which addresses of clients share a limit."""

import pytest

from openclaw_a2a.model.url_policy import client_network


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", ""])
def test_this_machine_has_a_limit_only_when_one_is_set(host: str) -> None:
    assert client_network(host)[1]


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "fe80::1%eth0", "10.0.0.1"])
def test_other_machines_have_a_limit(host: str) -> None:
    assert not client_network(host)[1]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_addresses_of_one_network_are_counted_together(one: str, other: str, is_same: bool) -> None:
    assert (client_network(one)[0] == client_network(other)[0]) is is_same
