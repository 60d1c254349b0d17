"""What push tests borrow: gateways in this process, conducted agents, clients of both wires."""

from ..conformance.asgi_door import Answer, Asked, Door  # noqa: TID252 - tests are no package
from ..conformance.conftest import (  # noqa: TID252 - tests are no package
    make_gateway,
    peers,
    token_of,
)
from ..conformance.scripted_agent import ScriptedAgent  # noqa: TID252 - tests are no package
from ..conformance.wire_clients import (  # noqa: TID252 - tests are no package
    V03Client,
    V1Client,
    v03_message,
    v1_message,
)

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
