"""A peer on a2a-sdk 1.x, JSON-RPC and HTTP+JSON: `python a2a_sdk_1_0.py PORT`.

hello    a message, no task
task:X   a task that completes with the artifact X
chunks:N a task whose artifact comes in N pieces
ask      a task that asks for a colour and completes with the answer
hold     a task that works until it is cancelled
slow     a task that takes its time
"""

import asyncio
import sys

import uvicorn
from a2a.server.agent_execution.agent_executor import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.server.tasks.task_updater import TaskUpdater
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
)
from starlette.applications import Starlette


class Agent(AgentExecutor):
    async def cancel(self, context, event_queue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def execute(self, context, event_queue) -> None:
        text = context.get_user_input()
        if text == "hello":
            await event_queue.enqueue_event(
                Message(
                    message_id="m-1",
                    role=Role.ROLE_AGENT,
                    context_id=context.context_id,
                    parts=[Part(text="hello back")],
                )
            )
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            await event_queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                    history=[context.message],
                )
            )
        await updater.start_work()
        await answer(text, updater)


async def answer(text: str, updater: TaskUpdater) -> None:
    kind, _, rest = text.partition(":")
    if kind == "ask":
        await updater.requires_input(updater.new_agent_message([Part(text="which colour?")]))
        return
    if kind == "hold":
        await asyncio.sleep(60)
    if kind == "slow":
        await asyncio.sleep(1.5)
        rest = "at last"
    if kind == "chunks":
        for index in range(int(rest)):
            await updater.add_artifact(
                [Part(text=f"<{index}>")],
                artifact_id="a",
                append=index > 0,
                last_chunk=index == int(rest) - 1,
            )
    else:
        await updater.add_artifact([Part(text=rest or text)], artifact_id="a")
    await updater.complete()


def make_app(port: int) -> Starlette:
    url = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name="sdk 1.0",
        description="a peer",
        version="1",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="talk", name="Talk", description="Talks.", tags=["t"])],
        supported_interfaces=[
            AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url=f"{url}/rpc"),
            AgentInterface(protocol_binding="HTTP+JSON", protocol_version="1.0", url=f"{url}/rest"),
        ],
    )
    handler = DefaultRequestHandler(
        agent_executor=Agent(), task_store=InMemoryTaskStore(), agent_card=card
    )
    return Starlette(
        routes=[
            *create_agent_card_routes(agent_card=card),
            *create_jsonrpc_routes(request_handler=handler, rpc_url="/rpc"),
            *create_rest_routes(request_handler=handler, path_prefix="/rest"),
        ]
    )


if __name__ == "__main__":
    port = int(sys.argv[1])
    uvicorn.run(make_app(port), host="127.0.0.1", port=port, log_level="warning")
