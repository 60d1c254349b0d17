"""A connection of ours to a real OpenClaw, without our gateway."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.openclaw.openclaw_process import OpenClaw

from openclaw_a2a.agents.openclaw_gateway.connection import (
    GatewayConnection,
    acquire_connection,
    release_connection,
)
from openclaw_a2a.agents.openclaw_gateway.handshake import GatewaySite

CONNECT_S = 60.0


@asynccontextmanager
async def open_connection_to(openclaw: OpenClaw) -> AsyncGenerator[GatewayConnection]:
    """The connection, connected."""
    site = GatewaySite(openclaw.ws_url, "env:TOKEN_OF_THE_LINK")
    connection = acquire_connection(site, environ={"TOKEN_OF_THE_LINK": openclaw.token})
    try:
        await connection.wait_connected(CONNECT_S)
        yield connection
    finally:
        await release_connection(connection)
