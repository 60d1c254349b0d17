"""How a stream of events is drawn."""

import sys

import pytest

from openclaw_a2a.cli.render.stream import StreamView
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)


def agent_message(text: str) -> Message:
    return Message("m", Role.AGENT, (Part.of_text(text),))


def status(state: TaskState, text: str | None = None) -> StreamBody:
    message = agent_message(text) if text else None
    return StreamBody(status_update=StatusUpdate("t", "c", TaskStatus(state, message)))


def task(state: TaskState, *artifacts: Artifact) -> StreamBody:
    return StreamBody(task=Task("t", "c", TaskStatus(state), artifacts))


def artifact(text: str, artifact_id: str = "a", **metadata: object) -> Artifact:
    return Artifact(artifact_id, (Part.of_text(text),), metadata=metadata or None)


def piece(text: str, artifact_id: str = "a", *, append: bool = True) -> StreamBody:
    return StreamBody(
        artifact_update=ArtifactUpdate("t", "c", artifact(text, artifact_id), append=append)
    )


@pytest.fixture
def draw(capsys):
    """Draw events; what was printed as data and as talk."""

    def show(*events: StreamBody) -> tuple[str, list[str]]:
        screen = StreamView()
        for event in events:
            screen.draw(event)
        screen.finish()
        printed = capsys.readouterr()
        return printed.out, printed.err.splitlines()

    return show


def test_text_chunks_are_printed_as_they_arrive(draw) -> None:
    out, talk = draw(
        task(TaskState.SUBMITTED),
        status(TaskState.WORKING),
        piece("one ", append=False),
        piece("two"),
        piece(""),
        status(TaskState.COMPLETED, "one two"),
    )
    assert out == "one two\n"
    assert talk == ["task t · context c", "submitted", "working", "completed"]


def test_a_direct_answer_says_which_files_it_lacks(draw) -> None:
    metadata = {"omittedFiles": "a.png (image/png) was left out"}
    message = Message("m", Role.AGENT, (Part.of_text("see"),), metadata=metadata)
    out, talk = draw(StreamBody(message=message))
    assert (out, talk) == ("see\n", ["a.png (image/png) was left out"])


def test_repeated_snapshot_prints_only_new_text(draw) -> None:
    out, _ = draw(
        task(TaskState.WORKING),
        piece("one ", append=False),
        task(TaskState.WORKING, artifact("one two")),
        piece(" three"),
        task(TaskState.COMPLETED, artifact("one two three")),
    )
    assert out == "one two three\n"


def test_replaced_text_is_printed_again_with_a_notice(draw) -> None:
    out, talk = draw(piece("wrong", append=False), piece("right", append=False))
    assert out == "wrong\nright\n"
    assert talk == ["(the text begins anew)"]


def test_every_message_starts_on_a_new_line(draw) -> None:
    out, _ = draw(piece("one", "a"), piece("two", "b"), piece("!", "b"))
    assert out == "one\ntwo!\n"


def test_parts_of_one_message_each_start_on_a_new_line(draw) -> None:
    parts = (Part.of_text("one"), Part.of_text("two\n"), Part.of_url("https://a.example/y"))
    lines = "one\ntwo\n[file https://a.example/y]\n"
    assert draw(StreamBody(message=Message("m", Role.AGENT, parts)))[0] == lines
    made = ArtifactUpdate("t", "c", Artifact("a", parts))
    ended = StreamBody(
        task=Task("t", "c", TaskStatus(TaskState.COMPLETED), (Artifact("a", parts),))
    )
    assert draw(StreamBody(artifact_update=made), ended)[0] == lines


def test_answer_with_a_final_line_break_prints_no_empty_line(draw) -> None:
    assert draw(StreamBody(message=agent_message("done\n")))[0] == "done\n"
    assert draw(status(TaskState.COMPLETED, "done\n"))[0] == "done\n"


def test_text_chunks_are_joined_without_line_breaks(draw) -> None:
    pieces = Artifact("a", (Part.of_text("one "), Part.of_text("two")))
    assert draw(task(TaskState.WORKING, pieces), piece("!"))[0] == "one two!\n"
    file = ArtifactUpdate("t", "c", Artifact("a", (Part.of_url("https://b"),)), append=True)
    assert draw(piece("see"), StreamBody(artifact_update=file))[0] == "see\n[file https://b]\n"


def test_running_task_prints_its_state_before_its_text(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr", sys.stdout)  # what is seen in which order
    screen = StreamView()
    screen.draw(task(TaskState.WORKING, artifact("so far")))
    screen.draw(status(TaskState.COMPLETED, "so far"))
    screen.finish()
    seen = capsys.readouterr().out.splitlines()
    assert seen == ["task t · context c", "working", "so far", "completed"]


def test_tool_artifacts_and_notes_go_to_standard_error(draw) -> None:
    tool = ArtifactUpdate("t", "c", artifact("search started", "tool-1", source="tool"))
    out, talk = draw(
        piece("thinking"),
        StreamBody(artifact_update=tool),
        StreamBody(artifact_update=tool),
        status(TaskState.WORKING, "half way"),
    )
    assert out == "thinking\n"
    assert talk == ["search started", "working: half way"]


def test_answer_in_the_final_status_message_is_printed(draw) -> None:
    assert draw(status(TaskState.COMPLETED, "no artifacts"))[0] == "no artifacts\n"


def test_failed_status_shows_its_message(draw) -> None:
    out, talk = draw(status(TaskState.FAILED, "the reason"))
    assert (out, talk) == ("", ["failed: the reason"])


def test_paused_task_prints_how_to_answer(draw) -> None:
    _, talk = draw(task(TaskState.WORKING), status(TaskState.INPUT_REQUIRED, "Sure?"))
    assert talk[-2:] == [
        "input-required: Sure?",
        'Answer with: openclaw-a2a send --task t "..."',
    ]


def test_files_and_data_are_described(draw) -> None:
    parts = (
        Part.of_bytes(b"abc", media_type="image/png", filename="x.png"),
        Part.of_url("https://a.example/y"),
        Part.of_data({"a": 1}),
    )
    out, _ = draw(StreamBody(message=Message("m", Role.AGENT, parts)))
    assert "[file x.png, image/png, 3 bytes]" in out
    assert "[file https://a.example/y]" in out
    assert '"a": 1' in out


def test_terminal_output_has_colour_but_no_control_characters(draw, monkeypatch) -> None:
    evil = "a\x1b]0;title\x07b\x9bc"
    assert draw(piece(evil))[0] == f"{evil}\n"
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    out, talk = draw(piece(evil), status(TaskState.FAILED, "x\x1b[2Jy"))
    assert out == "a]0;titlebc\n"
    assert talk == ["\x1b[2mfailed: x[2Jy\x1b[0m"]
    monkeypatch.setenv("NO_COLOR", "1")
    assert draw(status(TaskState.WORKING))[1] == ["working"]
