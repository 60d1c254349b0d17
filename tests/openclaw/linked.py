"""A link of ours to a real OpenClaw, without a gateway of ours around it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.openclaw.openclaw_process import OpenClaw

from openclaw_a2a.agents.openclaw_gateway.handshake import Site
from openclaw_a2a.agents.openclaw_gateway.link import Link, release_link, take_link

CONNECT_S = 60.0


@asynccontextmanager
async def linked(openclaw: OpenClaw) -> AsyncGenerator[Link]:
    """The link, connected."""
    site = Site(openclaw.ws_url, "env:TOKEN_OF_THE_LINK")
    link = take_link(site, environ={"TOKEN_OF_THE_LINK": openclaw.token})
    try:
        await link.connected(CONNECT_S)
        yield link
    finally:
        await release_link(link)
