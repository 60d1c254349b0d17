"""Ask OpenClaw and receive a webhook when the task has ended.

Needs the program `openclaw` on the PATH.  Usage: python openclaw_push_receiver.py Say hello
"""

import asyncio
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from threading import Thread

from openclaw_a2a import OpenClawAgentAdapter

TOKEN = "a secret of your own"  # noqa: S105 - an example
notices: Queue[dict] = Queue()


class Webhook(BaseHTTPRequestHandler):
    """Accepts notifications that carry the token."""

    def do_POST(self) -> None:
        """Handle one notification."""
        is_known = self.headers["Authorization"] == f"Bearer {TOKEN}"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204 if is_known else 401)
        self.end_headers()
        if is_known:
            notices.put(json.loads(body))

    def log_message(self, *_: object) -> None:
        """Log nothing."""


async def main(text: str, url: str) -> None:
    """Print the notification of the end of the task."""
    async with OpenClawAgentAdapter(agent_id="main") as adapter:
        task = await adapter.handle(
            {
                "message": {"role": "ROLE_USER", "parts": [{"text": text}]},
                "configuration": {"taskPushNotificationConfig": {"url": url, "token": TOKEN}},
            }
        )
        print("waiting for", task.id, flush=True)
        update = (await asyncio.to_thread(notices.get, timeout=600))["statusUpdate"]
        print(update["taskId"], update["status"]["state"])
        print(update["status"]["message"]["parts"][0]["text"])


server = HTTPServer(("127.0.0.1", 0), Webhook)
Thread(target=server.serve_forever, daemon=True).start()
asyncio.run(main(" ".join(sys.argv[1:]) or "Say hello.", f"http://127.0.0.1:{server.server_port}"))
server.shutdown()
