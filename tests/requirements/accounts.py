"""Rules about accounts: their settings, their routes, and what happens when they are off."""

from tests.requirements.requirement import rules

_SECTION = "inbound contract, section 2"
_ENDPOINTS = "ours: endpoints"

ACCOUNTS = (
    *rules(
        _SECTION,
        inbound_account={
            "enabled-by-default": "An account is served unless its `enabled` is false.",
            "label": "The label is the card's name; without one the account id is.",
            "description": "The description is the card's; without one a built-in sentence is.",
            "needs-public-url": (
                "An account with no public base URL of its own and none from the server does not "
                "start, and the reason names `publicBaseUrl`."
            ),
            "bad-public-url-is-unset": "A public base URL that is no URL counts as absent.",
            "default-agent": "Messages go to `defaultAgentId`, or to the gateway's own default.",
            "session-store": "`sessionStore` becomes the store path of the task's binding.",
            "protocol-version": "`protocolVersion` is shown on the card and is 0.3.0 by default.",
            "card-path": "The card is at `agentCardPath`; a missing leading slash is added.",
            "rpc-path": "JSON-RPC is at `jsonRpcPath`; a missing leading slash is added.",
            "max-body": "`maxBodyBytes` is a positive integer, 1 MiB when absent.",
            "input-modes": (
                "`defaultInputModes` are media types, wildcard subtypes allowed; text/plain and "
                "application/json when absent."
            ),
            "output-modes": "`defaultOutputModes` are free strings with the same default.",
            "agent-style": "`agentStyle` is hybrid by default and may be task-generating.",
            "origin-policy": "`originRoutingPolicy` is suppress-generic-followup by default.",
            "task-store": "An account may keep its tasks in memory or in a json-file directory.",
            "skills": (
                "Skills need id and name, others are dropped; with no usable one there is a "
                "single chat skill."
            ),
            "forgiving": "A value of the wrong type gives the default and a warning with its path.",
            "trimmed": (
                "Strings are trimmed, arrays trimmed and freed of duplicates, and an empty array "
                "of strings gives the default."
            ),
            "unknown-key": "An unknown key is an error.",
            "bad-choice": (
                "A style or origin policy that is not listed is an error with the full key path "
                "that lists the values."
            ),
            "bad-input-mode": (
                "An input mode that is no media type is an error with the full key path that "
                "names it."
            ),
            "bad-task-store": (
                "A task store that is no object, of unknown kind, or a json-file without an "
                "absolute path is an error with the full key path."
            ),
            "removed-keys": (
                "The removed keys restPath, capabilities and auth are errors that say to remove "
                "them."
            ),
            "route-conflict": (
                "Two enabled accounts, or one account twice, cannot use one route path; the error "
                "names path and owner."
            ),
            "store-conflict": (
                "Two accounts, enabled or not, cannot share a json-file path, compared after "
                "normalising."
            ),
            "sorted": "Accounts are handled in the order of their ids.",
            "unknown-is-disabled": "Asking for an unknown account gives a disabled one.",
            "default-choice": (
                "The default account is the first enabled one, else the first, else `default`."
            ),
            "inherits": "Public base URL and store are inherited from the gateway when left out.",
            "none-configured": (
                "With no channel configured there is one `default` account in style "
                "task-generating."
            ),
            "not-running": (
                "A route of an account that does not run answers 503 A2A_ACCOUNT_NOT_RUNNING with "
                "channel and account id."
            ),
            "route-failure": "An unexpected failure answers 500 A2A_INBOUND_ROUTE_ERROR.",
            "route-unknown": "Any other path answers 404 A2A_ROUTE_NOT_FOUND.",
            "method-unknown": "Another method of a known path answers 405 with those it has.",
        },
    ),
    *rules(
        _SECTION,
        inbound_account={
            "push-on": "With `pushNotifications` true the four push methods work.",
        },
    ),
    *rules(
        _ENDPOINTS,
        inbound_account={
            "paths": (
                "The default account lives at the root; others have their default paths below "
                "/agents/<account>."
            ),
            "directory": "GET /agents lists the public cards of the accounts that run.",
        },
    ),
)
