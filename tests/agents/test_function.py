"""Functions as agents: every kind of function, and how turns are stopped."""

import asyncio
import functools
import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from openclaw_a2a.agents import CallableAgent
from openclaw_a2a.model.agent_event import MessageEnd, Note, Reply, TextDelta
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable, SettingsInvalid
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def plain(text):
    return text.upper()


async def awaited(text):
    return text.upper()


class Shouter:
    def __call__(self, text):
        return text.upper()

    async def background_events(self, text):
        return text.upper()


class AsyncShouter:
    async def __call__(self, text):
        return text.upper()


def decorated(function):
    return lambda text: function(text)


@pytest.mark.parametrize(
    "function",
    [
        plain,
        awaited,
        str.upper,
        Shouter(),
        Shouter().background_events,
        AsyncShouter(),
        functools.partial(plain),
        functools.partial(awaited),
        decorated(awaited),
        lambda *texts: texts[0].upper(),
    ],
)
async def test_result_of_any_function_is_the_reply(answer, make_turn, function):
    assert await answer(CallableAgent(function), make_turn()) == [Reply.of_text("HELLO")]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: "nothing", "nothing"),
        (lambda text: text, "hello"),
        (lambda text, turn: f"{text} {turn.task_id}", "hello task-1"),
        (lambda turn, text: f"{text} {turn.task_id}", "hello task-1"),
        (lambda a, b: f"{a} {b.task_id}", "hello task-1"),
        (lambda turn: turn.task_id, "task-1"),
        (lambda text, loudness=3: f"{text} {loudness}", "hello 3"),
        (lambda text, loudness=3, turn=None: f"{text} {turn.task_id}", "hello task-1"),
        (lambda text, *, turn: f"{text} {turn.task_id}", "hello task-1"),
        (lambda *, text: text, "hello"),
        (max, "o"),
        (lambda text, **others: f"{text} {others}", "hello {}"),
    ],
)
async def test_function_gets_the_arguments_it_declares(answer, make_turn, function, expected):
    assert await answer(CallableAgent(function), make_turn()) == [Reply.of_text(expected)]


async def test_parameter_annotated_as_turn_gets_the_turn(answer, make_turn):
    def function(question: Turn):
        return question.task_id

    assert await answer(CallableAgent(function), make_turn()) == [Reply.of_text("task-1")]


@pytest.mark.parametrize(
    "function", [lambda a, b, c: "", lambda turn, a, b: "", lambda a, *, b, c: ""]
)
def test_function_with_other_required_parameters_is_refused(function):
    with pytest.raises(SettingsInvalid):
        CallableAgent(function)


@pytest.mark.parametrize(
    ("result", "events"),
    [
        ("text", [Reply.of_text("text")]),
        (Part(url="x:y"), [Reply((Part(url="x:y"),))]),
        (["a", Part(data=1)], [Reply((Part(text="a"), Part(data=1)))]),
        ({"a": 1}, [Reply((Part(data={"a": 1}),))]),
        ([1, "a"], [Reply((Part(data=[1, "a"]),))]),
        (Note("n"), [Note("n")]),
        ([Note("n"), Reply.of_text("r")], [Note("n"), Reply.of_text("r")]),
        (None, []),
        ("", []),
        ([], []),
    ],
)
async def test_each_kind_of_result_has_its_events(answer, make_turn, result, events):
    assert await answer(CallableAgent(lambda: result), make_turn()) == events


@pytest.mark.parametrize("result", [7, 1.5, True, b"bytes", object()])
async def test_other_results_fail_the_turn(answer, make_turn, result):
    with pytest.raises(AgentFailed, match=type(result).__name__):
        await answer(CallableAgent(lambda: result), make_turn())


ITEMS = ["a", "", "b", None, Part(data=1), {"x": 1}, "c", Note("n"), "d", MessageEnd(), ["e"]]
TOLD = [
    TextDelta("a"),
    TextDelta("b"),
    MessageEnd(),
    Reply((Part(data=1),)),
    Reply((Part(data={"x": 1}),)),
    TextDelta("c"),
    Note("n"),
    TextDelta("d"),
    MessageEnd(),
    Reply((Part(text="e"),)),
]


def generated(text):
    yield from ITEMS


async def generated_later(text):
    for item in ITEMS:
        await anyio.lowlevel.checkpoint()
        yield item


async def returned_later(text):
    return generated_later(text)


@pytest.mark.parametrize(
    "function", [generated, generated_later, returned_later, lambda: iter(ITEMS)]
)
async def test_yielded_items_become_events_at_once(answer, make_turn, function):
    assert await answer(CallableAgent(function), make_turn()) == TOLD


async def test_generator_is_not_read_ahead(make_turn):
    """The next item is taken only after the one before was yielded."""
    taken = []

    def count():
        for number in range(3):
            taken.append(number)
            yield str(number)

    events = CallableAgent(count).run(make_turn())
    assert await anext(events) == TextDelta("0")
    assert taken == [0]
    await events.aclose()
    assert taken == [0]


def breaks():
    raise ValueError("the reason")


async def breaks_later():
    raise ValueError("the reason")


def breaks_between():
    yield "a"
    raise ValueError("the reason")


async def breaks_between_later():
    yield "a"
    raise ValueError("the reason")


@pytest.mark.parametrize("function", [breaks, breaks_later, breaks_between, breaks_between_later])
async def test_exception_fails_the_turn_with_its_message(answer, make_turn, function):
    with pytest.raises(AgentFailed) as caught:
        await answer(CallableAgent(function), make_turn())
    assert caught.value.message == "the reason"


@pytest.mark.parametrize("error", [KeyError, StopIteration, StopAsyncIteration, TimeoutError])
async def test_exception_without_a_message_is_named(answer, make_turn, error):
    def function():
        raise error

    with pytest.raises(AgentFailed, match=error.__name__):
        await answer(CallableAgent(function), make_turn())


async def test_our_own_errors_pass_unchanged(answer, make_turn):
    def function():
        raise AgentUnavailable("closed today")

    with pytest.raises(AgentUnavailable, match="closed today"):
        await answer(CallableAgent(function), make_turn())


def test_interrupted_function_is_repeated_only_if_declared():
    assert CallableAgent(plain).recovery is Recovery.FAIL
    assert CallableAgent(plain, recovery=Recovery.REPEAT).recovery is Recovery.REPEAT


async def first_event(agent, turn):
    return await anext(agent.run(turn))


async def test_async_function_is_cancelled_at_once(make_turn):
    order = []

    async def function():
        try:
            await anyio.sleep_forever()
        finally:
            order.append("cancelled")

    with anyio.fail_after(240), anyio.move_on_after(0.05):
        await first_event(CallableAgent(function), make_turn())
    assert order == ["cancelled"]


async def test_async_generator_is_closed_with_the_turn(make_turn):
    order = []

    async def function():
        try:
            yield "a"
        finally:
            await anyio.lowlevel.checkpoint()
            order.append("closed")

    events = CallableAgent(function).run(make_turn())
    await anext(events)
    await events.aclose()
    assert order == ["closed"]


def stopping_by_scope(scope, task):
    scope.cancel()


def stopping_by_task(scope, task):
    task.cancel()
    task.cancel()


@pytest.mark.parametrize("stop", [stopping_by_scope, stopping_by_task])
@pytest.mark.parametrize("kind", ["function", "generator"])
async def test_stopping_a_turn_waits_for_its_thread(make_turn, stop, kind):
    order, started, release = [], threading.Event(), threading.Event()

    def work():
        started.set()
        release.wait(240)
        order.append("function")

    def steps():
        try:
            yield work()
        finally:
            order.append("closed")

    scope = anyio.CancelScope()

    async def consume():
        try:
            with scope:
                await first_event(CallableAgent(work if kind == "function" else steps), make_turn())
        finally:
            order.append("stopped")

    with anyio.fail_after(240):
        task = asyncio.ensure_future(consume())
        await anyio.to_thread.run_sync(started.wait, 240)
        stop(scope, task)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert order == []
        release.set()
        await asyncio.wait((task,))
    assert order == ["function", *(["closed"] if kind == "generator" else []), "stopped"]


async def test_slow_functions_run_in_parallel(answer, make_turn):
    """More than the forty threads that are shared by everything else."""
    meeting = threading.Barrier(50)
    agent = CallableAgent(lambda: str(meeting.wait(240) >= 0))
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(answer, agent, make_turn())
