"""Rules about direct answers, promotion to a task, and the events of a task."""

from tests.requirements.requirement import rules

PROMOTION = rules(
    "inbound contract, section 6",
    runtime_promotion={
        "continues-task": "A message on a task is a task from the start.",
        "task-generating": "In task-generating style every run is a task from the start.",
        "non-blocking": "A non-blocking send is a task from the start.",
        "tool-reply": "A tool's reply makes a direct run a task.",
        "tool-event": "A tool event of any phase makes a direct run a task.",
        "second-assistant-message": "A second assistant message makes a direct run a task.",
        "agent-error": "An error the agent reports makes a direct run a failed task.",
        "raised-error": "An exception of the agent makes a direct run a failed task.",
        "pause": "A pause for input makes a direct run a task.",
        "no-content": "Ending without one assistant message with content makes a task.",
        "not-by-text": "Blocks, streamed text and start events leave a run direct.",
        "once": "A run is promoted at most once.",
        "streams-too": "Streaming requests follow the rule of blocking ones.",
        "order": (
            "Promotion shows the submitted task with the user's message, then submitted, then "
            "working once, then what was staged."
        ),
        "continuation": "On a continuation the snapshot holds the task's history and artifacts.",
    },
    runtime_direct={
        "one-message": "A direct run ends as one agent message with context and without task id.",
        "no-trace": "A direct run leaves no task behind.",
    },
)

TRANSCRIPT = rules(
    "inbound contract, section 7",
    runtime_transcript={
        "one-final": "Only the last status event is final.",
        "last-state": "The last state is completed, failed or canceled.",
        "last-message": (
            "The last status says the last assistant message with content, else a fixed sentence."
        ),
        "assistant-artifacts": (
            "Each assistant message is an artifact assistant-output-0001 and so on, with its name."
        ),
        "deltas": "Growing text is sent as appended deltas.",
        "replaced": "Text that does not continue what was shown replaces the artifact.",
        "closing-chunk": "Each assistant artifact is closed by exactly one last chunk.",
        "empty-closing": "With nothing left to say the closing chunk appends one empty text.",
        "previews": "A preview that continues the known text replaces it, else it is appended.",
        "terminal-text": "The final reply wins over streamed text, that over joined blocks.",
        "tool-replies": "Tool replies are artifacts tool-result-0001 and so on.",
        "tool-progress": (
            "Tool progress is one artifact per call with a short text, the payload as data, and "
            "its metadata; the result closes it."
        ),
        "tool-call-id": "Unsafe characters of a call id are replaced in the artifact id.",
        "reply-metadata": "Reply artifacts carry their source and the run's event count.",
        "approval": "A tool result that asks for approval pauses the task as input-required.",
        "approval-prompt": "The pause says the trimmed prompt, or a fixed sentence.",
        "pause-open": "A pause is not final; a later message on the task resumes it.",
        "pause-blocking": "A blocking call returns the paused task.",
        "pause-stream": "A stream closes after the pause.",
        "error-text": "The error's text is the message of the failed status.",
        "shutdown": "Stopping the gateway writes no final event for a run under way.",
    },
    runtime_output={
        "accepted-set": (
            "Accepted modes are those of the request, trimmed and lower-cased, else the account's."
        ),
        "text": "Text is sent only when text/plain is accepted.",
        "media": "Media by URL are file parts when their type or a wildcard for it is accepted.",
        "direct-refused": "A direct answer that cannot be sent at all gives -32005.",
        "available": "The error names the modes of the content that there was.",
        "task-refused": "A task whose answer cannot be sent fails and the call gives -32005.",
        "omitted-files": "Files that are left out are named: by a status, by the direct answer.",
    },
)
