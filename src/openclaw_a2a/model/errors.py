"""All errors of the gateway. Each class has a stable code in kebab-case, searchable everywhere.

GatewayError
  CallerError     the request is wrong or not possible
      ParseFailed InvalidRequest MethodNotFound InvalidParams ContentTooLarge PartNotAccepted
      MessageIdConflict ContextMismatch TaskNotFound TaskTerminal TaskNotWaiting TaskNotCancelable
      TaskNotLive QuotaExceeded TaskUnbound UnsupportedOperation PushNotSupported PushConfigNotFound
      ApprovalNotFound ApprovalOver DeliveryNotFound CallNotFound PlanItemNotFound
      StatusChangeNotAllowed ChangedMeanwhile PlanLimitExceeded DependencyNotValid OutputNotAccepted
      ExtendedCardNotConfigured ExtensionRequired VersionNotSupported MediaTypeNotSupported
      ContentCodingNotSupported BodyTooLarge BodyTooSlow HeadersTooLarge HeadersTooSlow
      Unauthenticated NotAllowed InsufficientScope Overloaded TooManyAttempts TooManyConnections
      Draining IssuerUnavailable RouteNotFound MethodNotAllowed AccountNotRunning
  AgentError      the agent failed or refused
      AgentUnavailable AgentFailed
  GatewayFault    ours: peers get no details
      StoreUnavailable Conflict LeaseLost IllegalTransition AlreadyExists TaskDeleted
      CorruptRecord SchemaTooNew StoreLocked PortTaken SettingsInvalid
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct


class Problem(JsonStruct, frozen=True):
    """One thing wrong with some input: where, what, and which rule it broke."""

    path: str
    message: str
    keyword: str | None = None


class GatewayError(Exception):
    """Base of all errors: a stable code, a sentence for people, details for programs."""

    code: ClassVar[str] = "internal-error"

    def __init__(self, message: str, *, details: JsonObject | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: JsonObject = details or {}

    def __init_subclass__(cls, *, code: str | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code


class CallerError(GatewayError, code="invalid-request"):
    """The request is wrong or not possible."""


class ParseFailed(CallerError, code="parse-error"):
    """The bytes are not JSON."""


class InvalidRequest(CallerError, code="invalid-request"):
    """JSON, but no request we can read."""


class MethodNotFound(CallerError, code="method-not-found"):
    """No such method."""


class InvalidParams(CallerError, code="invalid-params"):
    """Members are missing or of the wrong type; `problems` lists every one."""

    def __init__(self, message: str, *, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class ContentTooLarge(InvalidParams, code="content-too-large"):
    """A message, or the task that it continues, has more of something than a limit allows."""

    def __init__(
        self, message: str, *, problems: tuple[Problem, ...] = (), setting: str = ""
    ) -> None:
        super().__init__(message, problems=problems)
        if setting:
            self.details["setting"] = setting


class PartNotAccepted(CallerError, code="part-not-accepted"):
    """A file part that the agent does not take, or whose content is not of its media type."""


class MessageIdConflict(CallerError, code="message-id-conflict"):
    """Another body under a message id that was used before."""


class ContextMismatch(CallerError, code="context-mismatch"):
    """The contextId given is not the task's."""


class TaskNotFound(CallerError, code="task-not-found"):
    """Unknown task, or one of another caller."""


class TaskTerminal(CallerError, code="task-terminal"):
    """The task has ended; nothing can be added to it."""


class TaskNotWaiting(CallerError, code="task-not-waiting"):
    """The task waits for no answer, or was answered by another message."""


class TaskNotCancelable(CallerError, code="task-not-cancelable"):
    """The task cannot be, or refuses to be, stopped."""


class TaskNotLive(CallerError, code="task-not-live"):
    """The task is stored as active but is running nowhere."""


class TaskUnbound(CallerError, code="task-unbound"):
    """The task has no stored binding to an agent."""


class UnsupportedOperation(CallerError, code="unsupported-operation"):
    """The agent does not offer this."""


class PushNotSupported(CallerError, code="push-not-supported"):
    """Push notifications are off for this agent."""


class PushConfigNotFound(CallerError, code="push-config-not-found"):
    """The task has no push configuration with this id."""


class ApprovalNotFound(CallerError, code="approval-not-found"):
    """No approval with this id is waiting."""


class ApprovalOver(CallerError, code="approval-over"):
    """It was decided already, or its time is over."""


class DeliveryNotFound(CallerError, code="delivery-not-found"):
    """There is no delivery with this id."""


class CallNotFound(CallerError, code="call-not-found"):
    """There is no call with this id."""


class PlanItemNotFound(CallerError, code="plan-item-not-found"):
    """There is no objective, plan or plan task with this id."""


class StatusChangeNotAllowed(CallerError, code="status-change-not-allowed"):
    """An objective, a plan or a plan task cannot change from its status to the requested one."""


class ChangedMeanwhile(CallerError, code="changed-meanwhile"):
    """An objective or a plan was changed after the caller has read it."""


class PlanLimitExceeded(CallerError, code="plan-limit-exceeded"):
    """More plans in an objective, or tasks in a plan, than there may be."""


class DependencyNotValid(CallerError, code="dependency-not-valid"):
    """A dependency of a plan or a plan task is unknown, or part of a cycle."""


class OutputNotAccepted(CallerError, code="output-not-accepted"):
    """The answer has content, none of it in an accepted output mode."""


class ExtendedCardNotConfigured(CallerError, code="extended-card-not-configured"):
    """There is no extended card."""


class ExtensionRequired(CallerError, code="extension-required"):
    """The card demands an extension that the caller did not activate."""


class VersionNotSupported(CallerError, code="version-not-supported"):
    """A protocol version we do not speak."""


class MediaTypeNotSupported(CallerError, code="media-type-not-supported"):
    """The request body is not JSON by its content type."""


class ContentCodingNotSupported(CallerError, code="content-coding-not-supported"):
    """The request body is compressed, or encoded in another way."""


class BodyTooLarge(CallerError, code="body-too-large"):
    """The request body is over the limit."""


class BodyTooSlow(CallerError, code="body-too-slow"):
    """The request body did not arrive in time."""


class HeadersTooLarge(CallerError, code="headers-too-large"):
    """The head of the request, or the framing of its body, is over the limit."""


class HeadersTooSlow(CallerError, code="headers-too-slow"):
    """The head of the request did not arrive in time."""


class Unauthenticated(CallerError, code="unauthenticated"):
    """No credentials, or none that are valid here; unknown, expired and revoked ones look alike."""

    def __init__(
        self, message: str, *, has_credentials: bool = True, schemes: Iterable[str] = ("Bearer",)
    ) -> None:
        """`schemes`: the HTTP authentication schemes that are accepted."""
        super().__init__(message)
        self.has_credentials = has_credentials
        self.schemes = tuple(schemes)


class NotAllowed(CallerError, code="not-allowed"):
    """A known caller without permission."""


class InsufficientScope(NotAllowed, code="insufficient-scope"):
    """Credentials that are valid, but for another part of the gateway; `scope` names this one."""

    def __init__(self, message: str, *, scope: str = "a2a") -> None:
        super().__init__(message)
        self.scope = scope


class Overloaded(CallerError, code="overloaded"):
    """A limit is reached; `retry_after_s` says when to try again, `setting` what sets the limit."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0, setting: str = "") -> None:
        details: JsonObject = {"retryAfterSeconds": retry_after_s}
        if setting:
            message, details["setting"] = f"{message} ({setting})", setting
        super().__init__(message, details=details)
        self.retry_after_s = retry_after_s


class QuotaExceeded(CallerError, code="quota-exceeded"):
    """The caller has reached a quota; `setting` sets its limit.

    Unlike `Overloaded` it does not end by itself: an item must be deleted, or must end.
    """

    retry_after_s = 60.0

    def __init__(self, message: str, *, setting: str = "") -> None:
        text = f"{message} ({setting})" if setting else message
        super().__init__(text, details={"setting": setting} if setting else None)


class TooManyAttempts(Overloaded, code="too-many-attempts"):
    """Wrong credentials, after many others from the same address."""


class Draining(Overloaded, code="draining"):
    """The gateway is stopping; retry after its restart."""


class IssuerUnavailable(Overloaded, code="issuer-unavailable"):
    """The keys of a token's issuer could not be fetched yet."""

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float = 1.0,
        wait: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.wait = wait
        """Waits for the fetch that is under way; None when there is none."""


class TooManyConnections(Overloaded, code="too-many-connections"):
    """The gateway has reached its limit of connections, in total or from one address."""


class RouteNotFound(CallerError, code="route-not-found"):
    """No such address."""


class MethodNotAllowed(CallerError, code="method-not-allowed"):
    """The address has other HTTP methods, which `allowed` lists."""

    def __init__(self, message: str, *, allowed: Iterable[str] = ()) -> None:
        self.allowed = list(allowed)
        super().__init__(message, details={"allowed": self.allowed})


class AccountNotRunning(CallerError, code="account-not-running"):
    """The address belongs to an account that is off."""


class AgentError(GatewayError, code="agent-failed"):
    """The agent failed or refused."""


class AgentUnavailable(AgentError, code="agent-unavailable"):
    """The agent cannot be reached or started; `retry_after_s` says when it may be, if known."""

    retry_after_s: float | None = None

    def __init__(
        self,
        message: str,
        *,
        details: JsonObject | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, details=details)
        self.retry_after_s = retry_after_s


class AgentFailed(AgentError, code="agent-failed"):
    """The agent answered with an error."""


class GatewayFault(GatewayError, code="internal-error"):
    """Something on our side is wrong."""


class StoreUnavailable(GatewayFault, code="store-unavailable"):
    """The store did not take the write."""


class Conflict(GatewayFault, code="conflict"):
    """The stored state is not what the writer expected; nothing was written."""


class LeaseLost(Conflict, code="lease-lost"):
    """The run ended, or another owner claimed it; the write was refused."""


class IllegalTransition(Conflict, code="illegal-transition"):
    """The state of the task does not allow this step."""


class AlreadyExists(Conflict, code="already-exists"):
    """A task, message or record with this id is stored already."""


class TaskDeleted(Conflict, code="task-deleted"):
    """The task to change is not stored any more."""


class CorruptRecord(GatewayFault, code="corrupt-record"):
    """A stored record cannot be read."""


class SchemaTooNew(GatewayFault, code="schema-too-new"):
    """The store was written by a newer version of the gateway."""


class StoreLocked(GatewayFault, code="store-locked"):
    """Another process uses the store."""


class PortTaken(GatewayFault, code="port-taken"):
    """Another process listens on the gateway's port."""


class SettingsInvalid(GatewayFault, code="settings-invalid"):
    """The configuration has problems; `problems` lists every one with its path."""

    def __init__(self, message: str, *, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems
