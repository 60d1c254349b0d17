"""A peer on a2a-sdk 1.x, JSON-RPC, HTTP+JSON and gRPC: `python a2a_sdk_1_0.py PORT`.

Below /0.3/ it has the card of a peer that speaks gRPC of protocol 0.3.

hello    a message, no task
task:X   a task that completes with the artifact X
chunks:N a task whose artifact comes in N pieces
ask      a task that asks for a colour and completes with the answer
hold     a task that works until it is cancelled
slow     a task that takes its time
"""

import asyncio
import sys

import grpc
import uvicorn
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.agent_execution.agent_executor import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
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
    a2a_pb2_grpc,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


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


def make_card(url: str, grpc_port: int) -> AgentCard:
    return AgentCard(
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
            AgentInterface(
                protocol_binding="GRPC", protocol_version="1.0", url=f"127.0.0.1:{grpc_port}"
            ),
        ],
    )


async def old_card(request: Request) -> JSONResponse:
    grpc_port = request.app.state.grpc_port
    return JSONResponse(
        {
            "name": "sdk 1.0",
            "description": "a peer",
            "version": "1",
            "protocolVersion": "0.3.0",
            "url": f"http://127.0.0.1:{grpc_port}",
            "preferredTransport": "GRPC",
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
        }
    )


async def main(port: int) -> None:
    server = grpc.aio.server()
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    card = make_card(f"http://127.0.0.1:{port}", grpc_port)
    handler = DefaultRequestHandler(
        agent_executor=Agent(), task_store=InMemoryTaskStore(), agent_card=card
    )
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), server)
    await server.start()
    app = Starlette(
        routes=[
            Route("/0.3/.well-known/agent-card.json", old_card),
            *create_agent_card_routes(agent_card=card),
            *create_jsonrpc_routes(request_handler=handler, rpc_url="/rpc"),
            *create_rest_routes(request_handler=handler, path_prefix="/rest"),
        ]
    )
    app.state.grpc_port = grpc_port
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")
    await uvicorn.Server(config).serve()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
