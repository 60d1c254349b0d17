"""Opening a connection to an OpenClaw gateway, and saying clearly why one could not be opened."""

import os
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from openclaw_a2a.agents.openclaw_gateway.frames import (
    Frame,
    Refusal,
    encode_request,
    read_as,
    read_frame,
)
from openclaw_a2a.agents.openclaw_gateway.handshake import (
    Address,
    Challenge,
    Hello,
    connect_params,
    read_hello,
    refused_entry,
)
from openclaw_a2a.model.errors import AgentUnavailable
from openclaw_a2a.settings.paths import is_loopback

_MOST_FRAME_BYTES: Final = 64 * 1024 * 1024
_OPEN_S: Final = 20.0
_PING_S, _PONG_S = 20.0, 60.0
"""A busy gateway may take long to answer a ping; a dead one never does."""


class Failure(msgspec.Struct, frozen=True):
    """Why there is no connection; `is_final` when trying again changes nothing by itself."""

    error: AgentUnavailable
    is_final: bool = False


async def open_socket(address: Address) -> tuple[ClientConnection, Hello] | Failure:
    """A connection that was let in, or why there is none."""
    try:
        with anyio.fail_after(_OPEN_S):
            return await _open(address)
    except TimeoutError:
        return Failure(_silent(address))
    except InvalidURI:
        return Failure(_no_url(address), is_final=True)
    except InvalidHandshake as error:
        return Failure(_something_else(address, str(error)))
    except (OSError, WebSocketException) as error:
        return Failure(_unreachable(address, error))
    except (ValueError, ImportError) as error:  # a name that is none; a proxy we cannot speak to
        return Failure(_unreachable(address, error))


async def _open(address: Address) -> tuple[ClientConnection, Hello] | Failure:
    # A proxy is for gateways elsewhere; asking one for our own loopback only fails.
    proxy = None if is_loopback(urlsplit(address.url).hostname or "") else True
    socket = await connect(
        address.url,
        max_size=_MOST_FRAME_BYTES,
        open_timeout=None,
        close_timeout=2.0,
        ping_interval=_PING_S,
        ping_timeout=_PONG_S,
        compression=None,
        proxy=proxy,
    )
    is_in = False
    try:
        entered = await _enter(socket, address)
        if isinstance(entered, Failure):
            return entered
        is_in = True
        return socket, entered
    finally:
        if not is_in:
            await _drop(socket)


async def _enter(socket: ClientConnection, address: Address) -> Hello | Failure:
    try:
        challenge = await _read_until(socket, is_answer=False)
        params = connect_params(address, read_as(Challenge, challenge.payload) or Challenge())
        await socket.send(encode_request("connect", "connect", params), text=True)
        answer = await _read_until(socket, is_answer=True)
        if answer.ok:
            return read_hello(answer.payload, address)
    except AgentUnavailable as error:
        return Failure(error, is_final=True)
    refusal = answer.error or Refusal()
    return Failure(refused_entry(address, refusal), is_final=not refusal.is_passing)


async def _read_until(socket: ClientConnection, *, is_answer: bool) -> Frame:
    """The challenge, or the answer to `connect`; what else arrives before is of no use."""
    while True:
        frame = read_frame(await socket.recv(decode=False))
        if frame is None:
            continue
        if is_answer and frame.type == "res" and frame.id == "connect":
            return frame
        if not is_answer and frame.event == "connect.challenge":
            return frame


async def _drop(socket: ClientConnection) -> None:
    with anyio.move_on_after(2.0, shield=True):
        await socket.close()


def _silent(address: Address) -> AgentUnavailable:
    return AgentUnavailable(
        f"OpenClaw at {address.url} took the connection and said nothing for {_OPEN_S:g} seconds;"
        " check that its gateway runs: openclaw gateway status."
    )


def _no_url(address: Address) -> AgentUnavailable:
    return AgentUnavailable(
        f"{address.url} is no WebSocket address;"
        " set the agent's option url, for example ws://127.0.0.1:18789."
    )


def _something_else(address: Address, reason: str) -> AgentUnavailable:
    return AgentUnavailable(
        f"What answers at {address.url} is no OpenClaw gateway ({reason});"
        " check the agent's option url."
    )


def _unreachable(address: Address, error: Exception) -> AgentUnavailable:
    number = getattr(error, "errno", None)
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = os.strerror(number) if isinstance(number, int) and number > 0 else said
    return AgentUnavailable(
        f"OpenClaw at {address.url} cannot be reached ({reason});"
        " start its gateway: openclaw gateway run."
    )
