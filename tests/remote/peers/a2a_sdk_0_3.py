"""A peer on a2a-sdk 0.3, JSON-RPC and HTTP+JSON: `python a2a_sdk_0_3.py PORT`.

It does as the text says; see a2a_sdk_1_0.py.
"""

import asyncio
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
    TextPart,
)
from starlette.applications import Starlette
from starlette.routing import Mount


def text_part(text: str) -> Part:
    return Part(root=TextPart(text=text))


class Agent(AgentExecutor):
    async def cancel(self, context, event_queue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def execute(self, context, event_queue) -> None:
        text = context.get_user_input()
        if text == "hello":
            await event_queue.enqueue_event(
                Message(
                    message_id="m-1",
                    role=Role.agent,
                    context_id=context.context_id,
                    parts=[text_part("hello back")],
                )
            )
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            await event_queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=TaskStatus(state=TaskState.submitted),
                    history=[context.message],
                )
            )
        await updater.start_work()
        await answer(text, updater)


async def answer(text: str, updater: TaskUpdater) -> None:
    kind, _, rest = text.partition(":")
    if kind == "ask":
        question = updater.new_agent_message([text_part("which colour?")])
        await updater.requires_input(question, final=True)
        return
    if kind == "hold":
        await asyncio.sleep(60)
    if kind == "slow":
        await asyncio.sleep(1.5)
        rest = "at last"
    if kind == "chunks":
        for index in range(int(rest)):
            await updater.add_artifact(
                [text_part(f"<{index}>")],
                artifact_id="a",
                append=index > 0,
                last_chunk=index == int(rest) - 1,
            )
    else:
        await updater.add_artifact([text_part(rest or text)], artifact_id="a")
    await updater.complete()


def make_app(port: int) -> Starlette:
    url = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name="sdk 0.3",
        description="a peer",
        version="1",
        url=f"{url}/rpc",
        preferred_transport="JSONRPC",
        additional_interfaces=[
            AgentInterface(transport="JSONRPC", url=f"{url}/rpc"),
            AgentInterface(transport="HTTP+JSON", url=f"{url}/rest"),
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="talk", name="Talk", description="Talks.", tags=["t"])],
    )
    handler = DefaultRequestHandler(agent_executor=Agent(), task_store=InMemoryTaskStore())
    rpc = A2AStarletteApplication(agent_card=card, http_handler=handler)
    rest = A2ARESTFastAPIApplication(agent_card=card, http_handler=handler).build()
    return Starlette(routes=[*rpc.routes(rpc_url="/rpc"), Mount("/rest", rest)])


if __name__ == "__main__":
    port = int(sys.argv[1])
    uvicorn.run(make_app(port), host="127.0.0.1", port=port, log_level="warning")
