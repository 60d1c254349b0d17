"""Serve an agent whose store raises the error that the id of a task names: `raise-<class>`.

Usage: failing_server.py PORT
"""

import sys

import uvicorn

from openclaw_a2a import to_a2a
from openclaw_a2a.model import errors
from openclaw_a2a.store.memory.store import MemoryStore


class FailingTasks:
    """The tasks of a store, of which some cannot be read."""

    def __init__(self, tasks):
        self._tasks = tasks

    def __getattr__(self, name):
        return getattr(self._tasks, name)

    async def read_task(self, scope, task_id):
        self._raise_error(task_id)
        return await self._tasks.read_task(scope, task_id)

    async def measure_task(self, scope, task_id):
        self._raise_error(task_id)
        return await self._tasks.measure_task(scope, task_id)

    def _raise_error(self, task_id):
        prefix, _, name = task_id.partition("raise-")
        if not prefix and name:
            raise getattr(errors, name)("it was asked for")


class FailingStore(MemoryStore):
    def __init__(self):
        super().__init__()
        self.tasks = FailingTasks(self.tasks)


def answer(text: str) -> str:
    return text


if __name__ == "__main__":
    port = int(sys.argv[1])
    app = to_a2a(answer, task_store=FailingStore(), url=f"http://127.0.0.1:{port}", name="failing")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
