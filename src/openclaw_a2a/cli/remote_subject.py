"""Which remote agent and which task are meant, by what was typed and what is remembered."""

import msgspec

from openclaw_a2a.cli.remote_memory import RemoteMemory
from openclaw_a2a.cli.remote_whom import Message, Whom, misuse
from openclaw_a2a.library.remote_agents import Recipient, RemoteAgents, SendOptions, TaskOptions
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.handles.handles import HANDLE_PREFIX, TaskHandle


class Subjects:
    """Finds them for one command."""

    def __init__(self, remote: RemoteAgents, memory: RemoteMemory, whom: Whom) -> None:
        self._remote = remote
        self._memory = memory
        self._whom = whom

    @property
    def agent(self) -> str:
        """What the agent is called, when nothing is remembered of another; may be empty."""
        config = self._remote.config
        default = config.default_target or (config.targets[0] if len(config.targets) == 1 else None)
        return self._whom.name or (default.alias if default else "")

    def of_task(self, name: str | None) -> tuple[Recipient, TaskOptions]:
        """The task of this name; without one, the last. Raises: InvalidRequest."""
        if name is None:
            if self._whom.name:
                raise misuse("which task is not said", "Give its id before or after --target.")
            return self._last_task(), {}
        found = [one for one in self._remote.handles if self._is_meant(one, name)]
        # A task may have several handles; the one used last comes first.
        exact = [one for one in found if name in (one.name, one.task_id)]
        found = exact or found
        if len({(one.task_id, one.target.base_url) for one in found}) > 1:
            shown = ", ".join(dict.fromkeys(one.task_id for one in found))
            raise misuse(f"several tasks begin with {name}: {shown}", "Give more of the id.")
        if found:
            return found[0].name, {}
        return (name, {}) if name.startswith(HANDLE_PREFIX) else (self._target(), {"task_id": name})

    def of_message(self, message: Message) -> tuple[Recipient, SendOptions]:
        """Where a message goes, and what it carries. Raises: InvalidRequest."""
        more: SendOptions = {"timeout_s": self._whom.seconds, "require_task": message.require_task}
        if message.file:
            more["files"] = list(message.file)
        if message.data is not None:
            more["data"] = _object(message.data)
        if message.context:
            more["context_id"] = message.context
        if message.go_on:
            if message.task or message.context or self._whom.name:
                raise misuse(
                    "--continue goes on with the last task or context and with no other",
                    "Leave out --continue, or --task, --context, --target and --url.",
                )
            return self._memory.recall(), more
        if message.task is None:
            return self._target(), more
        to, naming = self.of_task(message.task)
        if "task_id" in naming:
            more["task_id"] = naming["task_id"]
        return to, more

    def _target(self) -> str | None:
        """What was named, else the default, else the only one there is."""
        if self._whom.target and self._whom.url:
            raise misuse("--target and --url both name the agent", "Leave out one of them.")
        return self.agent or None

    def _last_task(self) -> JsonObject:
        last = self._memory.recall()
        if "task" not in last:
            raise misuse(
                "the last answer was a message and no task", "Give the task's id, and --target."
            )
        return last

    def _is_meant(self, handle: TaskHandle, name: str) -> bool:
        is_there = self._whom.target in (None, handle.target.alias) and (
            self._whom.url is None
            or self._whom.url.rstrip("/") == handle.target.base_url.rstrip("/")
        )
        return is_there and (handle.name.startswith(name) or handle.task_id.startswith(name))


def _object(text: str) -> JsonObject:
    try:
        return msgspec.json.decode(text, type=JsonObject)
    except msgspec.MsgspecError as error:
        raise misuse(f"--data is no JSON object: {error}", "Such as: --data '{\"a\": 1}'") from None
