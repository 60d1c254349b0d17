"""Rules about what an agent is told and which session a message belongs to."""

from tests.requirements.requirement import rules

TURNS = (
    *rules(
        "inbound contract, section 5",
        inbound_turn={
            "text": "Text parts are joined by a blank line for the agent.",
            "nothing-usable": (
                "A message without text and data is answered by a direct message; no task, no run."
            ),
            "data-only": "With data parts only the body is a placeholder and the raw body empty.",
            "untrusted": (
                "Message metadata, data parts and part metadata become notes labelled untrusted, "
                "with sorted, indented JSON."
            ),
            "addresses": "The turn says from which peer to which account it goes.",
            "binding": "Session key, store path and agent id come from the binding.",
            "message-id": "The turn carries the peer's message id.",
            "thread-id": "The thread id is the local task id.",
            "origin": "Originating fields are set only with the legacy origin policy.",
            "peer-authenticated": "The peer is the authenticated name when there is one.",
            "peer-context": "Without a name the peer is the context id.",
            "binding-kept": "A follow-up on a task reuses the binding stored with it.",
            "reference-tasks": "Referenced tasks that exist are in the turn, others are ignored.",
        },
        inbound_session={
            "in-turn": "Two messages of one session run one after the other, in arrival order.",
            "failure-frees": "A failed run does not block the next of its session.",
        },
    ),
    *rules(
        "inbound contract, section 11",
        inbound_turn={
            "no-commands": "Text that begins with a slash reaches the agent as plain text.",
        },
    ),
)
