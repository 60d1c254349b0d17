"""Rules about agent cards."""

from tests.requirements.requirement import Deferral, deferred, rules

_SECTION = "inbound contract, section 3"

CARDS = (
    *rules(
        _SECTION,
        inbound_card={
            "members": (
                "The card has name, description, versions, url, transport, capabilities, modes "
                "and skills as the contract spells them."
            ),
            "url": "The card's url is the public base URL joined with the JSON-RPC path.",
            "capabilities": "The card says streaming true and stateTransitionHistory false.",
            "skills-repeat-modes": "Each skill repeats the account's input and output modes.",
            "skill-description": "A skill without description is described by its name.",
        },
    ),
    *rules(
        "inbound contract, section 11",
        inbound_card={
            "old-address": "/.well-known/agent.json gives the same card.",
        },
    ),
    *rules(
        "ours: endpoints",
        inbound_card={
            "hybrid-by-default": "Without a wish for 1.0 the card serves both generations.",
            "clean-when-asked": "Asked with A2A-Version 1.0 the card has 1.0 members only.",
            "vary": "The card's answer says that it varies by A2A-Version.",
            "push-not-offered": "While push is not offered the card says so in both generations.",
            "public": "The card is readable without credentials.",
            "follows-host": (
                "A gateway on every address without a public one names the valid Host by which "
                "the card is asked for; an address that is set, or a local one, is not replaced."
            ),
        },
    ),
    *rules(
        "A2A 1.0, agent card",
        wire_card={
            "required-members": "All members that 1.0 requires are on the card.",
            "interfaces": (
                "supportedInterfaces names the JSON-RPC and HTTP+JSON addresses with their "
                "binding and protocol version, the preferred one first."
            ),
            "etag": "The card has an ETag; a request that knows it gets 304 without a body.",
            "cache-control": "The card says for how long it may be kept.",
            "security": (
                "When callers need tokens the card declares the bearer scheme, in the shape of "
                "each generation."
            ),
        },
    ),
    *rules(
        "A2A 0.3, agent card",
        wire_card={
            "v03-required-members": "All members that 0.3 requires are on the hybrid card.",
        },
    ),
    *deferred(
        Deferral.EXTENDED_CARD,
        "A2A 1.0, agent card",
        wire_card={
            "extended": "An authenticated caller can fetch an extended card.",
        },
    ),
    *deferred(
        Deferral.SIGNATURES,
        "A2A 1.0, agent card",
        wire_card={
            "signed": "The card carries signatures over its canonical form.",
        },
    ),
)
