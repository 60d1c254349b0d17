"""Resolves the target, task and context of a validated request."""

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.config import ContinuationTargets, OutboundConfig, Transport
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.handles.handles import TaskHandle, TaskHandles
from openclaw_a2a.remote.targets import Target, TargetDirectory, TargetIdentity
from openclaw_a2a.remote.transport.interface_selection import check_supported


class ResolvedTarget(msgspec.Struct, frozen=True):
    """The target of a request, and the task and context in it."""

    target: Target
    task_id: str | None = None
    context_id: str | None = None
    handle: TaskHandle | None = None


class TargetResolver:
    """Resolves requests by handle, continuation, alias, address or default."""

    def __init__(
        self, config: OutboundConfig, targets: TargetDirectory, handles: TaskHandles
    ) -> None:
        self._config = config
        self._targets = targets
        self._handles = handles

    def resolve(self, request: JsonObject) -> ResolvedTarget:
        """The target of the request. Raises: RemoteFailure."""
        if "continuation" in request:
            return self._resolve_continuation(request["continuation"])
        if "task_handle" in request:
            return self._resolve_handle(request)
        return ResolvedTarget(
            self._named_target(request), request.get("task_id"), request.get("context_id")
        )

    def restore_target(self, kept: Target) -> Target | None:
        """The target of a stored handle as configured now; None when it is not allowed any more."""
        same = [one for one in self._targets.configured if one.identity == kept.identity]
        if same:
            return next((one for one in same if one.alias == kept.alias), same[0])
        if not self._allows_any_url:
            return None
        is_caller_named = not self._targets.configured_at(kept.base_url)
        return msgspec.structs.replace(kept, is_caller_named=is_caller_named)

    # ---------------------------------------------------------------- flat requests

    def _named_target(self, request: JsonObject) -> Target:
        if "target_alias" in request:
            return self._targets.by_alias(request["target_alias"])
        if "target_url" in request:
            return self._targets.by_url(request["target_url"])
        default = self._targets.default
        if default is None:
            raise RemoteFailure(
                ErrorCode.VALIDATION,
                "the request names no target and there is no default target",
                {"suggested_action": "list_targets"},
            )
        return default

    def _resolve_handle(self, request: JsonObject) -> ResolvedTarget:
        handle = self._handles.find(request["task_handle"])
        self._check_task(handle, request.get("task_id"))
        if "target_alias" in request or "target_url" in request:
            self._check_target(handle, self._named_target(request))
        context_id = request.get("context_id")
        self._check_context(handle, context_id)
        return ResolvedTarget(
            handle.target, handle.task_id, context_id or handle.context_id, handle
        )

    # ---------------------------------------------------------------- continuations

    def _resolve_continuation(self, continuation: JsonObject) -> ResolvedTarget:
        target = self._continuation_target(continuation["target"])
        task: JsonObject = continuation.get("task", {})
        conversation: JsonObject = continuation.get("conversation", {})
        context_id = conversation.get("context_id")
        name = task.get("task_handle")
        handle = self._handles.find_or_none(name) if name else None
        if handle is None:
            return ResolvedTarget(target, task.get("task_id"), context_id)
        self._check_task(handle, task["task_id"])
        self._check_target(handle, target)
        self._check_context(handle, context_id)
        return ResolvedTarget(
            handle.target, handle.task_id, context_id or handle.context_id, handle
        )

    def _continuation_target(self, named: JsonObject) -> Target:
        url: str = named["target_url"]
        transports = tuple(Transport(one) for one in named["preferred_transports"])
        self._check_transports(transports)
        try:
            normalized = self._targets.normalize(url)
        except ValueError:
            raise self._targets.url_not_allowed(url, url) from None
        identity = TargetIdentity(normalized, named["card_path"], transports)
        configured = self._targets.configured_at(url)
        alias = named.get("target_alias")
        same = [one for one in configured if one.identity == identity]
        if same:
            # The alias only tells apart what is otherwise the same.
            return next((one for one in same if one.alias == alias), same[0])
        auth = configured[0].auth if len(configured) == 1 else None
        hosts = configured[0].allowed_hosts if len(configured) == 1 else ()
        target = Target(identity, alias, auth=auth, allowed_hosts=hosts)
        if configured:
            return target
        if self._allows_any_url or self._handles.has_target(target):
            return self._targets.allow_caller_named(target)
        raise self._targets.url_not_allowed(url, normalized)

    @property
    def _allows_any_url(self) -> bool:
        """True when continuations may name any address."""
        policy = self._config.policy
        is_trusted = policy.continuation_targets is ContinuationTargets.TRUSTED
        return is_trusted or policy.allow_target_url_override

    def _check_transports(self, transports: tuple[Transport, ...]) -> None:
        if self._config.policy.enforce_supported_transports:
            check_supported(transports)

    # ---------------------------------------------------------------- handle and request must agree

    def _check_task(self, handle: TaskHandle, task_id: str | None) -> None:
        if task_id is not None and task_id != handle.task_id:
            raise RemoteFailure(
                ErrorCode.VALIDATION,
                f"the task handle is for task {handle.task_id}, the request for {task_id}",
                {
                    "task_handle": handle.name,
                    "handle_task_id": handle.task_id,
                    "explicit_task_id": task_id,
                },
            )

    def _check_target(self, handle: TaskHandle, target: Target) -> None:
        if target.identity != handle.target.identity:
            raise RemoteFailure(
                ErrorCode.VALIDATION,
                "the task handle belongs to another target than the request names",
                {
                    "task_handle": handle.name,
                    "handle_target": handle.target.as_object(),
                    "explicit_target": target.as_object(),
                },
            )

    def _check_context(self, handle: TaskHandle, context_id: str | None) -> None:
        if context_id and handle.context_id and context_id != handle.context_id:
            raise RemoteFailure(
                ErrorCode.VALIDATION,
                f"the task handle is for context {handle.context_id}, the request for {context_id}",
                {
                    "task_handle": handle.name,
                    "handle_context_id": handle.context_id,
                    "explicit_context_id": context_id,
                },
            )
