"""The peer without streaming is shared with the tests of the remote package."""

from tests.remote.plain_peer import plain_peer as plain_peer
