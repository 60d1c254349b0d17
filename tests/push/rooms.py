"""What push tests borrow: gateways in this process, conducted agents, clients of both wires."""

from tests.conformance.asgi_door import Answer, Asked, Door
from tests.conformance.conftest import make_gateway, peers, token_of
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.wire_clients import V03Client, V1Client, v03_message, v1_message

__all__ = [
    "Answer",
    "Asked",
    "Door",
    "ScriptedAgent",
    "V03Client",
    "V1Client",
    "make_gateway",
    "peers",
    "token_of",
    "v03_message",
    "v1_message",
]
