"""Rules of the adapter library: how adapters are shown, served and loaded, and the OpenClaw one."""

from tests.requirements.requirement import rules

ADAPTERS = (
    *rules(
        "adapter contract, section 2",
        adapter_program={
            "environment": "A program has our environment, what is added, and its own directory.",
            "time-out": "A program past its time is ended with its children; the error says so.",
            "failure": "An exit code other than zero fails with the program's own words.",
            "stale-resume": "A session that the program refuses silently is dropped, once.",
            "one-run": "One context runs one at a time, others beside it.",
            "cancel": "A cancelled program is ended; one that waits is never started.",
        },
    ),
    *rules(
        "adapter contract, section 3",
        adapter_loader={
            "members": "Members beside `adapter` are the constructor's arguments; none is changed.",
            "missing-key": "A configuration without an adapter is refused.",
            "unknown": "An unknown name is answered with the known ones.",
            "again": "A name that is registered again warns and is replaced.",
            "extra": "A missing dependency names what to install.",
            "entry-point": "Adapters of other distributions are found by name.",
        },
    ),
    *rules(
        "adapter contract, section 4",
        adapter_bridge={
            "states": "A request is submitted, then working, then completed.",
            "response": "An answer is one artifact called response; the last status has its text.",
            "placeholder": "An answer without text completes with a placeholder.",
            "wrong-type": "An answer that is neither text nor parts fails.",
            "chunks": "A stream is one artifact; only its last chunk is marked as the last.",
            "mid-stream": "An error in mid-stream closes the artifact once and repeats nothing.",
            "exception": "An exception fails the task with its words behind a fixed prefix.",
            "cancelled": "After CancelledByAdapter nothing more is said.",
            "cancel": "A cancel is told to the adapter; an error in that is only logged.",
            "empty": "A message without text is asked all the same.",
        },
    ),
    *rules(
        "adapter contract, section 5",
        adapter_card={
            "usual": "The card of an adapter that says nothing has the usual values.",
            "overrides": "Overrides go before the metadata.",
            "streaming": "Streaming is what is said, else what the adapter can do.",
            "both": "The served card is for readers of both generations.",
        },
        adapter_server={
            "root": "Both generations are spoken at the root, the card at both its addresses.",
            "no-streaming": "Streams are refused where the card says that there are none.",
            "store": "Tasks outlive the application in a store that is given.",
            "close": "A stop closes the adapter.",
            "empty-webhook": "A push configuration with an empty address is ignored.",
            "wildcard": "The card of a wildcard host says localhost.",
            "auth": "Callers show a token, or a function says who they are.",
            "strangers": "A host that others reach is refused without authentication.",
        },
    ),
    *rules(
        "adapter contract, section 6",
        openclaw_command={
            "defaults": "The arguments have the documented defaults.",
            "thinking": "An unknown level of thinking is refused with the known ones.",
            "line": "The command is exactly the documented one.",
            "session": "The session id follows the table of the contract.",
            "noise": "Noise around the document does not matter.",
            "failure": "An explicit failure fails with OpenClaw's words.",
            "exit": "An exit code other than zero is a failure with its reason.",
            "media": "Media follow the text of their payload, each once.",
            "media-type": "The media type goes by the extension.",
            "silent": "An answer without output completes and says why.",
            "sync": "The synchronous answer is a message in the caller's context.",
            "sync-timeout": "A timeout ends the processes and raises.",
            "sync-missing": "A missing program is a FileNotFoundError.",
            "no-tasks": "Without tasks the methods about tasks raise RuntimeError.",
        },
        openclaw_task={
            "at-work": "A task is at work at once, then complete with one artifact.",
            "failed": "A failure fails the task and keeps its history.",
            "timeout": "A timeout fails the task and names the seconds.",
            "cancel": "A cancel ends the processes and stays canceled.",
            "delete": "An ended task can be deleted, another cannot.",
            "ttl": "Ended tasks go after their time.",
            "one-run": "Requests of one session run one at a time.",
            "close": "Close ends everything and may be called again.",
        },
        openclaw_push={
            "new": "A webhook of 1.0 gets the last status.",
            "old": "A webhook of 0.3 gets the whole task.",
            "once": "A webhook is told once and then forgotten.",
            "refused": "A webhook that refuses changes nothing about the task.",
        },
    ),
)
