"""Helpers of the conformance tests that push tests use."""

from tests.conformance.asgi_client import AsgiClient, Request, Response
from tests.conformance.conftest import make_gateway, peers, token_of
from tests.conformance.protocol_clients import V03Client, V1Client, v03_message, v1_message
from tests.conformance.scripted_agent import ScriptedAgent

__all__ = [
    "AsgiClient",
    "Request",
    "Response",
    "ScriptedAgent",
    "V03Client",
    "V1Client",
    "make_gateway",
    "peers",
    "token_of",
    "v03_message",
    "v1_message",
]
