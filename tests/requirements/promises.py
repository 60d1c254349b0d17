"""Rules we add: the guarantees, the callers, the limits, the health pages."""

from tests.requirements.requirement import rules

PROMISES = (
    *rules(
        "ours: G1",
        promise_commit={
            "before-show": "Nothing is shown that a crash could take back.",
        },
    ),
    *rules(
        "ours: G2",
        promise_order={
            "one-order": "Every reader sees the same events with rising sequence numbers.",
            "timestamps": "The status timestamps of one task never decrease.",
            "one-terminal": "A task has exactly one terminal event.",
        },
    ),
    *rules(
        "ours: G3",
        promise_resume={
            "ids": "Stream frames carry the sequence as id; the first task is 0.",
            "missing-only": "With Last-Event-ID a reader gets what it missed and nothing else.",
            "ended": "The unread events of an ended task are streamed, not refused.",
            "bad-cursor": "A Last-Event-ID that the task never had is refused by name.",
        },
    ),
    *rules(
        "ours: G4",
        promise_recovery={
            "no-zombie": "After a restart no task stays working for ever.",
            "reason": "A run that cannot be repeated is failed with a reason.",
            "repeat": "A run of an agent that may be repeated is run again.",
        },
    ),
    *rules(
        "ours: G5",
        promise_idempotent={
            "task": "The same message twice gives the same task and one run.",
            "one-answer": "Of several messages that answer one pause, one is accepted.",
            "off": "With retention.messageSeconds 0 no message is a duplicate.",
            "direct": "The same message twice gives the same direct answer and one run.",
            "at-once": "This also holds when both arrive at once.",
            "conflict": "Another body under the same message id is an error that says so.",
            "per-caller": "Message ids of different callers have nothing to do with each other.",
        },
    ),
    *rules(
        "ours: G6",
        promise_lane={
            "one-run": "A session has one run at a time, in arrival order.",
            "parallel": "Different sessions run in parallel.",
        },
    ),
    *rules(
        "ours: G7",
        promise_calls={
            "one-outcome": "A call has one outcome in its caller's session, whoever is killed.",
            "busy": "It arrives although the caller is busy.",
            "restart": "It arrives although either side restarts.",
            "late": "An answer that comes late makes no second outcome.",
        },
    ),
    *rules(
        "ours: G8",
        promise_walls={
            "not-found": "Somebody else's task looks exactly like one that does not exist.",
            "sessions": "One context id of two callers is two sessions.",
            "lists": "Lists and reference tasks never show somebody else's tasks.",
            "accounts": "A task of one account is not found at another account.",
        },
    ),
    *rules(
        "ours: G9",
        promise_cancel={
            "stopped": "The agent has really stopped when canceled is committed.",
            "refuses": "A run that refuses to stop is not cancelable, never canceled.",
        },
    ),
    *rules(
        "ours: G10",
        promise_bounds={
            "body": "A body past the limit is refused without reading the rest.",
            "headers": "Heads, trailers and chunk extensions past the limit are refused unread.",
            "smuggling": "A request of unclear extent is refused, and what follows not answered.",
            "connections": "Idle, slow and too many connections are closed; callers are served.",
            "unread": "A client that does not read its response is cut off.",
            "parts": "Too many parts are refused with a clear error.",
            "references": "Referred tasks are read once each, at most so many and so large.",
            "large-reads": "Large tasks are read in slices, few at once, while somebody reads.",
            "file-content": "A file whose bytes are not of its media type is refused.",
            "file-names": "The names of files reach an agent without folders and control codes.",
            "depth": "Deep nesting is refused with a clear error.",
            "queue": "Past the queue limit new work is refused with Retry-After.",
            "run-time": "A run past its deadline is stopped and failed with a reason.",
            "history": "A task whose history is full takes no more messages.",
            "answer": "An answer larger than the limit fails its task with a reason.",
            "streams": "Past the limit of streams a new one is refused with Retry-After.",
            "keeps-accepted": "Overload loses no accepted work.",
            "slow-reader": "A slow reader holds nobody up.",
            "hostile": "Invalid UTF-8, NaN, huge numbers, doubled keys: a clear error, no 500.",
        },
    ),
    *rules(
        "ours: G11",
        promise_push={
            "isolated": "A slow or dead webhook delays no task and no other webhook.",
            "durable": "What was not delivered before a crash is delivered after it.",
            "back-off": "A failed delivery is tried again later and later, with jitter.",
            "retry-after": "A receiver that says when to come again is not called before.",
            "permanent": "A notification that is refused for good is skipped and recorded.",
            "dead-letter": "After the last try a delivery is kept with its reason, to be redone.",
            "order": "A webhook gets the events of a task in their order.",
            "few": "A long stream makes few notifications; each artifact comes once, whole.",
            "late": "What is added to an ended task is pushed too.",
            "secret": "Tokens and credentials are in no log and no list for the operator.",
        },
    ),
    *rules(
        "inbound contract, section 11",
        security={
            "bearer": "A peer is known by any of its tokens; its name is the caller.",
            "unauthenticated": "Without a known token the calls answer 401.",
            "forged-headers": "Headers of proxies count from trusted proxies only.",
            "challenge": "A 401 says in which ways callers can authenticate here.",
            "local": "On loopback without tokens the caller is `local`.",
            "sessions": "Sessions are keyed by peer and context.",
        },
        limits={
            "rate": "A peer past its rate gets 429 with Retry-After.",
            "runs": "A peer past its concurrent runs waits or is told to.",
        },
        retention={
            "age": "Ended tasks are forgotten after their time.",
            "count": "Ended tasks past the maximum count are forgotten, the oldest first.",
            "open-kept": "Tasks that have not ended are never forgotten.",
        },
        files={
            "accepted": "A file part within the input modes reaches the agent.",
            "bounded": "An inline file past the limit is refused.",
            "private": "A linked file on a private address is refused.",
        },
    ),
    *rules(
        "ours: endpoints",
        door={
            "healthz": "/healthz says that the process lives.",
            "readyz": "/readyz says whether requests would succeed.",
            "disconnect": "A client that goes away does not cancel the task it waited for.",
            "drain": "A stopping gateway refuses new work and leaves the rest recoverable.",
            "bind": "A bind other than loopback without authentication is refused at start.",
            "loopback-host": "A gateway on loopback refuses foreign Host and Origin headers.",
            "one-host": "A request names one host in a clear spelling, and one origin at most.",
        },
        clients={
            "official": "Official clients of both generations do every call.",
        },
    ),
)
