"""What the tools of calls take, as JSON Schema for whoever calls them."""

from openclaw_a2a.calls.request import MAIN, MODES
from openclaw_a2a.model.ids import JsonObject

CALL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "agent": {
            "type": "string",
            "description": "Id of the agent to call; target:<alias> for a remote one.",
        },
        "skill": {
            "type": "string",
            "description": "Which skill; list_skills tells which there are.",
        },
        "input": {"type": "object", "description": "What the skill works on, up to 1 MiB."},
        "mode": {"type": "string", "enum": list(MODES), "default": MODES[0]},
        "timeoutSeconds": {
            "type": "number",
            "minimum": 0,
            "description": "Seconds until a timeout is told; 0: no answer is brought, ask for it.",
        },
        "timeout": {
            "type": "number",
            "minimum": 0,
            "description": "The same in milliseconds; give one of the two.",
        },
        "wait": {
            "type": "boolean",
            "default": False,
            "description": "true: wait for the answer instead of getting it as a message.",
        },
        "session": {
            "type": "string",
            "enum": [MAIN],
            "description": "main: ask in the agent's main session instead of one of its own.",
        },
    },
    "required": ["agent", "skill", "input"],
}
"""What `agent_call` takes."""

BATCH_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "calls": {
            "type": "array",
            "maxItems": 50,
            "items": CALL_SCHEMA,
            "description": "Each as for agent_call; all are waited for.",
        },
        "concurrency": {
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
            "default": 5,
            "description": "How many are under way at once.",
        },
    },
    "required": ["calls"],
}
"""What `agent_call_batch` takes."""

POLL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "correlationId": {"type": "string", "description": "As the call was answered with."},
        "taskId": {"type": "string", "description": "Or the id of the task."},
    },
}
"""What `agent_poll` takes."""
