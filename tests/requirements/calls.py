"""Rules about JSON-RPC requests, their errors, and the five calls of the inbound contract."""

from tests.requirements.requirement import rules

RPC = (
    *rules(
        "inbound contract, section 4",
        inbound_rpc={
            "answers": "Answers of JSON-RPC are HTTP 200 with application/json.",
            "parse-error": "A body that is not JSON gives -32700 with id null.",
            "not-a-request": "No jsonrpc 2.0 or no method gives -32600.",
            "batch": "A batch gives -32600.",
            "notification": "A request without an id is carried out and gets no body.",
            "id-echo": "The id comes back when it is a string, an integer or null, else null.",
            "body-too-large": "A body over the account's limit gives HTTP 413 with a JSON error.",
            "unknown-method": "An unknown method gives -32601 with the method in the message.",
            "push-not-offered": (
                "The four push methods of 0.3 give -32601 with the method while push is not "
                "offered."
            ),
            "extended-card": "agent/getAuthenticatedExtendedCard gives -32004.",
            "params-shape": (
                "Params or message that are missing or no object, or parts that are no array, "
                "give -32602."
            ),
            "message-id": "A message without id gives -32602 that names message.messageId.",
            "part-without-kind": "A 0.3 part without kind but with one content member is taken.",
            "file-part": (
                "A file part whose type is not an input mode gives -32602 naming the part, before "
                "anything is stored or run."
            ),
            "unknown-task": (
                "An unknown task id in send, get, cancel and resubscribe gives -32001 with the id."
            ),
            "context-mismatch": "A context that is not the task's gives -32600 naming both.",
            "unbound": "A message to a task without stored binding gives -32004.",
            "terminal": "A message to an ended task gives -32600 naming the state.",
            "output-modes": (
                "An answer with no part in an accepted mode gives -32005 with the accepted and "
                "the available modes."
            ),
            "not-live": "Cancel of an active task that runs nowhere gives -32004.",
            "internal": "An internal failure gives -32603 and tells nothing of our insides.",
            "no-inner-metadata": "No payload carries our own or a vendor's internal metadata.",
        },
        inbound_stream={
            "frames": "Each event is one data line with a JSON-RPC response of the call's id.",
            "error-event": (
                "On 0.3 an error of a stream, also before its first event, is an error event with "
                "HTTP 200, then the stream closes."
            ),
            "heartbeat": "A silent stream gets a comment line at least every 15 seconds.",
        },
    ),
)

CALLS = (
    *rules(
        "inbound contract, section 8",
        inbound_send={
            "hybrid": "A blocking send in hybrid style answers with a message or a task.",
            "task-generating": "In task-generating style the answer is a task as the run left it.",
            "non-blocking": "A non-blocking send answers with the submitted task; the run goes on.",
        },
        inbound_stream={
            "direct": "The stream of a direct run is exactly one message.",
            "task": "The stream of a task is the task, its committed events, the final status.",
            "stored-first": "No event is delivered before it is stored.",
        },
        inbound_get={
            "latest": "Get gives the task as of its last committed event.",
            "history-length": "historyLength absent gives all history, 0 none, n the last n.",
        },
        inbound_cancel={
            "terminal": "On 0.3 cancel of an ended task returns it unchanged.",
            "paused": "Cancel of a paused task is committed at once.",
            "live": "Cancel of a live task aborts the run and returns its terminal state.",
            "completed-first": "A run that completes before it can be aborted is returned as such.",
            "cleanup-first": "The agent's clean-up has run before canceled is committed.",
        },
        inbound_resubscribe={
            "snapshot-first": "Resubscribe begins with the latest snapshot.",
            "live-tail": "For a live task the committed events follow until the final one.",
            "until-pause": "The tail also ends when the task pauses.",
            "ended": "On 0.3 an ended task gives its snapshot, then the stream closes.",
            "paused": "A paused task gives its snapshot, then the stream closes.",
            "orphaned": "An active task that runs nowhere gives its snapshot, then it closes.",
        },
        inbound_history={
            "appended": "A message to a task joins its history before the run, once per id.",
        },
    ),
    *rules(
        "inbound contract, section 10",
        inbound_queued={
            "task-required": "A queued reply must name its task.",
            "account": "A queued reply needs a running account.",
            "unknown-task": "A queued reply to an unknown task is refused.",
            "artifact": "A queued reply becomes one artifact, also on an ended task.",
            "payload": "Its parts are the text, and whatever else the payload has as data.",
            "nothing": "A queued reply that says nothing is fine and makes no artifact.",
            "live": "A queued reply joins the one order of a live or paused task.",
        },
        inbound_channel={
            "descriptor": "The channel says what it is, and that queued replies are its protocol.",
            "outbound": "Sends through the channel are refused, and the outbound tool is named.",
        },
    ),
    *rules(
        "ours: what agents say after their runs",
        inbound_queued={
            "newest": "A late reply goes to the newest task of its session, and nowhere else.",
            "once": "A late reply that is told again is one artifact, also after a restart.",
            "modes": "Of a late reply only what the account gives out is appended.",
            "bounded": "A task holds so many late replies of a limited size, and no more.",
            "heard": "An agent whose later words break off is listened to again.",
        },
        pause_elsewhere={
            "goes-on": "A pause that somebody else ends lets its task go on with its token.",
            "once": "A pause that is told to be over twice, or is another one, starts nothing.",
            "canceled": "Canceled is committed when what waits elsewhere has really ended.",
            "rights": "Only a peer with the right to approve is told apart as one.",
        },
    ),
)
