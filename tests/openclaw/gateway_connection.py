"""A link of ours to a real OpenClaw, without a gateway of ours around it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.openclaw.openclaw_process import OpenClaw

from openclaw_a2a.agents.openclaw_gateway.connect import GatewaySite
from openclaw_a2a.agents.openclaw_gateway.connection import (
    GatewayConnection,
    acquire_connection,
    release_connection,
)

CONNECT_S = 60.0


@asynccontextmanager
async def linked(openclaw: OpenClaw) -> AsyncGenerator[GatewayConnection]:
    """The link, connected."""
    site = GatewaySite(openclaw.ws_url, "env:TOKEN_OF_THE_LINK")
    link = acquire_connection(site, environ={"TOKEN_OF_THE_LINK": openclaw.token})
    try:
        await link.wait_connected(CONNECT_S)
        yield link
    finally:
        await release_connection(link)
