"""A function as an A2A server: `python examples/ten_line_server.py [port]`, then talk to it."""

import sys

from openclaw_a2a import serve_agent


def shout(text: str) -> str:
    """Says it back, louder."""
    return text.upper() + "!"


if __name__ == "__main__":
    serve_agent(adapter=shout, port=int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
