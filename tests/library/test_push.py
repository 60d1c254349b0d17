"""Push notifications of an embedded application reach a real webhook."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread

import anyio
import anyio.to_thread
import pytest

from openclaw_a2a import AgentAdapter


class Quick(AgentAdapter):
    async def invoke(self, user_input, context_id=None, **kwargs):
        return "done"


@pytest.fixture
def webhook():
    """The address of a webhook, and what it was sent."""
    received = Queue()

    class Receiving(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.put((dict(self.headers), json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiving) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", received
        finally:
            server.shutdown()
            thread.join()


def is_last(notice):
    state = notice.get("statusUpdate", notice).get("status", {}).get("state")
    return state in ("TASK_STATE_COMPLETED", "completed")


async def last_notice(received):
    with anyio.fail_after(240):
        while True:
            headers, notice = await anyio.to_thread.run_sync(lambda: received.get(timeout=240))
            if is_last(notice):
                return headers, notice


async def test_webhook_of_a_1_0_client_is_notified_of_the_end(serving, webhook):
    url, received = webhook
    config = {"url": url, "token": "t-1"}
    async with serving(Quick(), allow_private_webhooks=True) as client:
        await client.call(
            "SendMessage",
            message=client.message("hi"),
            configuration={"taskPushNotificationConfig": config},
        )
        headers, notice = await last_notice(received)
    assert headers["X-A2A-Notification-Token"] == "t-1"
    assert notice["statusUpdate"]["status"]["message"]["parts"] == [{"text": "done"}]


async def test_webhook_of_a_0_3_client_is_sent_the_whole_task(serving, webhook):
    url, received = webhook
    message = {
        "kind": "message",
        "messageId": "m",
        "role": "user",
        "parts": [{"kind": "text", "text": "hi"}],
    }
    async with serving(Quick(), allow_private_webhooks=True) as client:
        await client.call(
            "message/send", message=message, configuration={"pushNotificationConfig": {"url": url}}
        )
        _, notice = await last_notice(received)
    assert notice["kind"] == "task"
    assert notice["artifacts"][0]["name"] == "response"


async def test_private_webhook_is_refused_unless_it_is_allowed(serving, webhook):
    url, _ = webhook
    async with serving(Quick()) as client:
        answer = await client.call(
            "SendMessage",
            message=client.message("hi"),
            configuration={"taskPushNotificationConfig": {"url": url}},
        )
    assert "error" in answer
