"""The bench agent on a2a-sdk, tasks in memory.

Run: OTEL_INSTRUMENTATION_A2A_SDK_ENABLED=false python a2a_sdk.py PORT
(Without the variable its spans cost CPU even when no tracer listens.)
"""

import asyncio
import logging
import sys

import uvicorn
from a2a.server.agent_execution.agent_executor import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.server.tasks.task_updater import TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    Part,
    Task,
    TaskState,
    TaskStatus,
)
from starlette.applications import Starlette


class Bench(AgentExecutor):
    async def cancel(self, context, event_queue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def execute(self, context, event_queue) -> None:
        await event_queue.enqueue_event(
            Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                history=[context.message],
            )
        )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        await answer(context.get_user_input(), updater)
        await updater.complete()


async def answer(text: str, updater: TaskUpdater) -> None:
    kind, *rest = text.split(":")
    if kind == "chunks":
        count, piece = int(rest[0]), "x" * int(rest[1])
        for i in range(count):
            await updater.add_artifact(
                [Part(text=piece)], artifact_id="a", append=i > 0, last_chunk=i == count - 1
            )
    elif kind == "hist":
        for i in range(int(rest[0])):
            note = updater.new_agent_message([Part(text=f"step {i}")])
            await updater.update_status(TaskState.TASK_STATE_WORKING, message=note)
    elif kind == "hold":
        await asyncio.sleep(float(rest[0]))
    else:
        await updater.add_artifact([Part(text=text)], artifact_id="a", last_chunk=True)


def make_app(port: int) -> Starlette:
    url = f"http://127.0.0.1:{port}/"
    card = AgentCard(
        name="bench",
        description="bench",
        version="1",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text"],
        default_output_modes=["text"],
        supported_interfaces=[
            AgentInterface(protocol_binding="JSONRPC", protocol_version=version, url=url)
            for version in ("1.0", "0.3")
        ],
    )
    handler = DefaultRequestHandler(
        agent_executor=Bench(), task_store=InMemoryTaskStore(), agent_card=card
    )
    calls = create_jsonrpc_routes(request_handler=handler, rpc_url="/", enable_v0_3_compat=True)
    return Starlette(routes=[*create_agent_card_routes(agent_card=card), *calls])


if __name__ == "__main__":
    logging.disable(logging.INFO)
    uvicorn.run(
        make_app(int(sys.argv[1])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
    )
