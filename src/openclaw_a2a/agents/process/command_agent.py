"""Any program as an agent: the message is an argument or the input, the output is the answer.

The lines of a program that answers in JSON lines (`output: "jsonl"`):

"text" or {"delta": "text"}                   more text of the current assistant message
{"messageEnd": true}                          the current assistant message is over
{"reply": "text"}                             the current assistant message, whole
{"reply": {"parts": [...]}}                   the same, with A2A 1.0 parts
{"tool": {"phase", "name", "callId", ...}}    a tool call started, made progress or ended
{"note": "text"}                              progress, for the caller to see
{"inputRequired": "prompt", "resume": ...}    wait for the caller; the program must end now
{"error": "text"}                             the turn failed; the program must end now
{"report": {...}}                             facts about the run
"""

import base64
import codecs
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from openclaw_a2a.agents.adapter import EventAgent
from openclaw_a2a.agents.process.child import (
    ChildProcess,
    LimitedProcess,
    ProcessLimits,
    ProcessSpec,
    expand_directory,
    start_process,
)
from openclaw_a2a.agents.process.tree import end_orphans
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    Reply,
    Report,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject, RunId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.settings.sections import Amount, Count, Seconds, Section, about

_QUOTED = 200


class ToolLine(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The state of a tool call."""

    phase: ToolPhase
    name: str
    call_id: str
    payload: Json = None
    is_error: bool = False


class ReplyLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reply with parts."""

    parts: tuple[Part, ...]


class OutputLine(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One line: exactly one of these members (`resume` only with `inputRequired`)."""

    delta: str | UnsetType = UNSET
    message_end: Literal[True] | UnsetType = UNSET
    reply: str | ReplyLine | UnsetType = UNSET
    tool: ToolLine | UnsetType = UNSET
    note: str | UnsetType = UNSET
    input_required: str | UnsetType = UNSET
    resume: Json | UnsetType = UNSET
    error: str | UnsetType = UNSET
    report: JsonObject | UnsetType = UNSET


def parse_line(line: str) -> AgentEvent:
    """The event of a line. Raises: AgentFailed, quoting the line, when it is invalid."""
    try:
        content = _DECODER.decode(line)
        if isinstance(content, str):
            return TextDelta(content)
        members = [name for name in _FIELDS if getattr(content, name) is not UNSET]
        kinds = [name for name in members if name != "resume"]
        if len(kinds) != 1:
            raise ValueError(f"it must hold exactly one of {', '.join(_FIELDS.values())}")
        if "resume" in members and kinds[0] != "input_required":
            raise ValueError("resume goes with inputRequired only")
        return _EVENTS[kinds[0]](content)
    except (ValueError, RecursionError) as error:
        raise AgentFailed(
            f"The program wrote a line that cannot be read ({str(error)[:_QUOTED]}):"
            f" {line.strip()[:_QUOTED]}"
        ) from None


def _reply_event(line: OutputLine) -> Reply:
    if not isinstance(line.reply, ReplyLine):
        return Reply.of_text(str(line.reply))
    for part in line.reply.parts:
        contents = (part.text, part.raw, part.url)
        held = sum(content is not None for content in contents) + (part.data is not UNSET)
        if held != 1:
            raise ValueError("a part must hold exactly one of text, raw, url and data")
        if part.raw is not None:
            base64.b64decode(part.raw, validate=True)
    return Reply(line.reply.parts)


_DECODER = msgspec.json.Decoder(str | OutputLine)
_FIELDS = {field.name: field.encode_name for field in msgspec.structs.fields(OutputLine)}
_EVENTS: dict[str, Callable[[OutputLine], AgentEvent]] = {
    "delta": lambda line: TextDelta(str(line.delta)),
    "message_end": lambda _line: MessageEnd(),
    "reply": _reply_event,
    "tool": lambda line: ToolProgress(*msgspec.structs.astuple(cast("ToolLine", line.tool))),
    "note": lambda line: Note(str(line.note)),
    "input_required": lambda line: InputRequired(
        str(line.input_required), None if line.resume is UNSET else line.resume
    ),
    "error": lambda line: Failed(str(line.error)),
    "report": lambda line: Report(cast("JsonObject", line.report)),
}


class CommandOptions(Section, frozen=True):
    """How to run a program for a turn."""

    command: Annotated[
        tuple[str, ...], Meta(min_length=1), about("Program and arguments; never a shell.")
    ]
    input: Annotated[
        Literal["argv", "stdin"], about("How the message gets in: last argument, or input.")
    ] = "argv"
    output: Annotated[
        Literal["text", "jsonl"], about("How the answer comes out: text, or JSON lines.")
    ] = "text"
    timeout_seconds: Annotated[Seconds, about("How long one turn may take.")] = 600.0
    cwd: Annotated[str, about("Directory to run in; left out: the gateway's.")] = ""
    env: Annotated[dict[str, str], about("Variables added to the gateway's own environment.")] = (
        msgspec.field(default_factory=dict)
    )
    repeatable: Annotated[
        bool, about("Whether a turn cut off by a crash may simply be run again.")
    ] = False
    max_output_bytes: Annotated[Count, about("Most a turn may write.")] = 10 * 1024 * 1024
    kill_grace_seconds: Annotated[Amount, about("Time between SIGTERM and SIGKILL.")] = 2.0


class CommandAgent(EventAgent):
    """Runs a program for each turn; when the turn is over, nothing that it started is left.

    The program inherits `environment`; None: the gateway's own environment.
    """

    options_type: ClassVar[type[msgspec.Struct]] = CommandOptions

    def __init__(
        self, options: CommandOptions, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.is_repeatable = options.repeatable
        self._options = options
        self._environment = environment
        self._children: set[ChildProcess] = set()
        self._limits = ProcessLimits(
            options.command[0],
            options.timeout_seconds,
            options.max_output_bytes,
            timeout_hint="timeoutSeconds",
            size_hint="maxOutputBytes",
        )

    @classmethod
    def from_options(
        cls, options: CommandOptions, *, environment: Mapping[str, str] | None
    ) -> Self:
        """The agent for an entry of the settings."""
        return cls(options, environment=environment)

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Run the program and yield what it writes, as it writes it.

        Raises: AgentUnavailable (it cannot be started), AgentFailed (it failed, wrote too much,
        wrote an invalid line, or took too long).
        """
        options = self._options
        is_argument = options.input == "argv"
        child = start_process(
            ProcessSpec(
                argv=(*options.command, turn.body) if is_argument else options.command,
                environment=self._environment,
                variables={
                    **options.env,
                    "A2A_TASK_ID": turn.task_id,
                    "A2A_CONTEXT_ID": turn.context_id,
                    "A2A_MESSAGE_ID": turn.message_id,
                    "A2A_SESSION_KEY": turn.session_key,
                    "A2A_PRINCIPAL": turn.principal,
                    "A2A_ACCOUNT": turn.account,
                    "A2A_RESUME": msgspec.json.encode(turn.resume).decode(),
                },
                cwd=expand_directory(options.cwd),
                stdin=None if is_argument else turn.body.encode("utf-8", "replace"),
                output_grace_s=options.kill_grace_seconds,
                run_name=turn.run_id,
            )
        )
        # No await since the start: a cancellation cannot come between the child and its `finally`.
        self._children.add(child)
        try:
            program = LimitedProcess(child, self._limits)
            reader = _JsonLinesReader() if options.output == "jsonl" else _TextReader()
            while piece := await program.read():
                for event in reader.feed(piece):
                    yield event
            # The outcome is yielded after the exit: a failed program must not report success.
            exit_code = await program.exit_code()
            for event in reader.feed(b"", is_last=True):
                yield event
            # A failure that the program reported itself says more than its exit code.
            if exit_code != 0 and not isinstance(reader.outcome, Failed):
                raise program.failure(exit_code)
            if reader.outcome is not None:
                yield reader.outcome
        finally:
            # Shielded inside: a turn that is cancelled ends only when the program has ended.
            await child.kill_tree(grace_s=options.kill_grace_seconds)
            self._children.discard(child)

    async def end_orphans(self, run_id: RunId) -> None:
        """End the program that a killed gateway left running for this run, with all it started.

        Raises: AgentFailed when something refuses to end.
        """
        await end_orphans(run_id, grace_s=self._options.kill_grace_seconds)

    async def close(self) -> None:
        """End every program that still runs."""
        # A copy: the turn that this ends discards its child from the set.
        for child in tuple(self._children):
            await child.kill_tree(grace_s=self._options.kill_grace_seconds)


class _TextReader:
    """Text as it is written; a character split over two reads waits for its second half."""

    outcome: Failed | InputRequired | None = None

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes, *, is_last: bool = False) -> Iterator[AgentEvent]:
        text = self._decoder.decode(piece, final=is_last)
        if text:
            yield TextDelta(text)


class _JsonLinesReader:
    """One event per line.

    The line that ends the turn is kept in `outcome` until the program has ended, so that it can
    clean up; later lines are ignored.
    """

    def __init__(self) -> None:
        self.outcome: Failed | InputRequired | None = None
        self._rest: list[bytes] = []

    def feed(self, piece: bytes, *, is_last: bool = False) -> Iterator[AgentEvent]:
        *ended, begun = piece.split(b"\n")
        for last_piece in [*ended, begun] if is_last else ended:
            line = b"".join([*self._rest, last_piece])
            self._rest.clear()
            if self.outcome is None and line.strip():
                event = parse_line(line.decode("utf-8", "replace"))
                if isinstance(event, Failed | InputRequired):
                    self.outcome = event
                else:
                    yield event
        self._rest.append(begun)
