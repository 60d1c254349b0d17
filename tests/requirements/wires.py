"""Rules of the protocol itself: versions, shapes, errors, streams, lists."""

from tests.requirements.requirement import Deferral, deferred, rules

VERSIONS = rules(
    "A2A 1.0 and ours: endpoints",
    wire_version={
        "method-decides": "The method name decides the generation, on one path.",
        "absent": "A request of either generation without version header is taken.",
        "empty": "An empty version header counts as absent.",
        "agrees": "A method of the other generation than the header says gives -32601.",
        "unknown": "A version we do not speak gives -32009 in the 1.0 shape.",
        "patch": "Of the version only major and minor count.",
        "query": "The version may stand in the query instead of the header.",
        "rest": "The same holds on HTTP+JSON, with HTTP 400.",
    },
)

SHAPES = (
    *rules(
        "A2A 1.0",
        wire_v1={
            "methods": "The six task methods of 1.0 work on the JSON-RPC path.",
            "send-wrapped": "SendMessage wraps its task or message under a member of that name.",
            "get-task-bare": "GetTask and CancelTask return the task bare.",
            "states": "States and roles are spelt as enum names.",
            "member-selects": "Stream events are told apart by their member, without kind.",
            "no-final": "The end of a stream is its end; no final member is sent.",
            "return-immediately": "returnImmediately true answers once the task exists.",
            "proto-json-read": "Every ProtoJSON spelling of a request is read like the usual one.",
            "proto-json": "Every answer parses strictly as the protocol's own type.",
            "parts": "Text, inline file, linked file and data parts are read and written.",
            "one-content": "A part with none or several contents is refused.",
            "parts-required": "A message without parts is refused.",
            "unknown-members": "Unknown members are ignored.",
            "wrong-types": "Wrong types are refused with every problem listed.",
            "timestamps": "Timestamps are UTC and end in Z.",
            "push-not-offered": "The four push methods give -32003 while push is not offered.",
            "extended-card": "GetExtendedAgentCard gives -32004 while no card is offered.",
            "cancel-terminal": "Cancel of an ended task gives -32002.",
            "subscribe-terminal": "Subscribing to an ended task gives -32004.",
            "send-terminal": "A message to an ended task gives -32004.",
            "context-mismatch": "A context that is not the task's gives -32602.",
            "file-part": "A part whose media type is not accepted gives -32005.",
            "error-before-stream": "An error known before the first event is a plain JSON answer.",
            "tenant": "A tenant is refused, since no card of ours names one.",
            "extensions": "Wished extensions that we do not know are ignored.",
        },
    ),
    *rules(
        "A2A 0.3",
        wire_v03={
            "methods": "send, stream, get, cancel and resubscribe of 0.3 work on the same path.",
            "kinds": "Tasks, messages, events and parts carry their kind.",
            "states": "States and roles are spelt in lower case with dashes.",
            "final": "final is explicit and true on the last status only.",
            "booleans": "append and lastChunk are explicit.",
            "blocking": "configuration.blocking false answers once the task exists.",
            "parts": "Text, file and data parts are read and written.",
            "data-wrapped": "A data value that is no object is wrapped for 0.3.",
            "models": "Every answer is accepted by the official 0.3 models.",
            "push-wish": "A push wish inside a send gives -32003 while push is not offered.",
            "strict": "With strict03 an account answers 0.3 as the protocol says.",
            "error-shape": "Errors are plain code, message and free data.",
        },
    ),
    *rules(
        "A2A 1.0, HTTP+JSON",
        wire_rest={
            "send": "POST /message:send takes bare params and answers with task or message.",
            "stream": "POST /message:stream sends bare events.",
            "get": "GET /tasks/{id} gives the task.",
            "list": "GET /tasks lists, with camelCase query parameters.",
            "cancel": "POST /tasks/{id}:cancel cancels.",
            "subscribe": "Subscribe works by GET and by POST.",
            "media-type": "Answers are application/a2a+json; both JSON types are taken.",
            "tenant": "A path below a tenant is understood; no card of ours names one: refused.",
            "errors": "Errors are HTTP statuses with a google.rpc.Status body and ErrorInfo.",
            "push-not-offered": "The push paths give the named error while push is not offered.",
            "extended-card": "GET /extendedAgentCard gives the named error.",
            "unknown-path": "A path that does not exist is 404.",
            "unknown-method": "Another method of a known path is 405 with those it has.",
        },
    ),
    *rules(
        "ours: endpoints",
        wire_rest={
            "delete": "DELETE /tasks/{id} forgets an ended task and refuses an open one.",
        },
    ),
    *deferred(
        Deferral.GRPC,
        "A2A 1.0, gRPC",
        wire_grpc={
            "service": "The service of each generation is offered on one port.",
        },
    ),
    *rules(
        "A2A, push notifications",
        wire_push={
            "configs": "Configurations are created, read, listed and deleted.",
            "shapes": "Each generation has its own shape of a configuration; both are strict.",
            "inline": "A configuration inside a send belongs to the task that the send makes.",
            "default-id": "A configuration without id has the id of its task.",
            "several": "A task has several configurations, up to a limit.",
            "delete-again": "Deleting what is not there is no error.",
            "not-found": "An unknown task or configuration is not found, somebody else's too.",
            "delivery": "Webhooks get each generation's body, at least once.",
            "token": "The token comes in X-A2A-Notification-Token.",
            "authentication": "Authorization is the scheme and the credentials as given.",
            "media-type": "1.0 bodies are application/a2a+json, 0.3 bodies application/json.",
            "no-redirects": "An answer that is not 2xx is a failure; redirects are not followed.",
            "private-addresses": (
                "Private addresses are refused when registered and when connected to."
            ),
        },
    ),
)

ERRORS = rules(
    "A2A 1.0, errors",
    wire_error={
        "codes": "Each named error has its JSON-RPC code and HTTP status.",
        "classes": "Official clients raise the class of the protocol, the same over each binding.",
        "error-info": "1.0 errors carry an ErrorInfo with the error's name and the A2A domain.",
        "violations": "Validation errors list every field violation.",
        "content-type": "A body that is not JSON by its type is refused before it is parsed.",
        "content-coding": "A compressed body is refused before it is read.",
        "unauthenticated": "Missing credentials are a plain HTTP 401 with a challenge.",
    },
)

SEMANTICS = (
    *rules(
        "A2A 1.0, semantics",
        wire_sse={
            "headers": "Streams are text/event-stream, not stored and not buffered.",
            "one-line": "Each event is one data line, followed by a blank line.",
        },
        wire_stream={
            "message-only": "A stream that begins with a message has one event.",
            "task-first": "A stream of a task begins with the task and ends after its end.",
            "same-order": "All streams of a task see the same events in the same order.",
            "independent": "One stream closing does not affect the others.",
            "subscribe-first": "Subscribe begins with the task.",
            "subscribe-paused": "A 1.0 subscription stays open until the task is terminal.",
        },
        wire_ids={
            "server-made": "Task ids are made by the server.",
            "context-inferred": "A task id without context belongs to the task's context.",
            "context-alone": "A context id alone starts a new task in that context.",
            "context-kept": "A context id of the client is kept.",
        },
        wire_blocking={
            "default": "A send waits for a terminal or interrupted state and returns everything.",
        },
        wire_history={
            "length": "historyLength unset, 0 and n are honoured by send, get and list.",
            "negative": "A negative historyLength is refused.",
        },
        wire_list={
            "filters": "Tasks are filtered by context, status and status time.",
            "page-size": "pageSize is 1 to 100, 50 when absent; others are refused.",
            "sorted": "The newest status comes first.",
            "paging": "Page tokens walk through all tasks once; the last page's token is empty.",
            "members": "tasks, nextPageToken, pageSize and totalSize are always there.",
            "artifacts": "Artifacts are absent unless wished, then present even when empty.",
            "own-only": "Only the caller's tasks are listed.",
            "bad-token": "A page token that is not ours is refused.",
        },
    ),
)
