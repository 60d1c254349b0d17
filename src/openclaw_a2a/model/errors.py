"""All errors of the gateway, each with a stable code.

GatewayError(message, details)          code      stable kebab-case name, searchable everywhere
  CallerError                           the request is wrong or not possible
    ParseFailed                         the bytes are not JSON
    InvalidRequest                      JSON, but no request we can read
    MethodNotFound                      no such method
    InvalidParams                       readable, but members are missing or of the wrong type
    PartNotAccepted                     a file part whose media type the agent does not take
    MessageIdConflict                   another body under a message id that was used before
    ContextMismatch                     contextId is not the task's
    TaskNotFound                        unknown task, or one of another caller
    TaskTerminal                        the task has ended; nothing can be added to it
    TaskNotCancelable                   the task cannot be (or refuses to be) stopped
    TaskNotLive                         stored as active, but running nowhere
    TaskUnbound                         the task has no stored binding to an agent
    UnsupportedOperation                the agent does not offer this
    PushNotSupported                    push notifications are off for this agent
    PushConfigNotFound                  the task has no push configuration with this id
    ApprovalNotFound                    no approval with this id is waiting
    ApprovalOver                        it was decided already, or its time is over
    DeliveryNotFound                    there is no delivery with this id
    CallNotFound                        there is no call with this id
    PlanItemNotFound                    there is no objective, plan or plan task with this id
    StatusChangeNotAllowed              an objective, plan or plan task cannot go to this status
    ChangedMeanwhile                    an objective or plan is not as the caller has read it
    PlanLimitExceeded                   more plans or plan tasks than there may be
    DependencyNotValid                  a dependency is unknown, or leads in a circle
    OutputNotAccepted                   the answer has content, none in an accepted output mode
    ExtendedCardNotConfigured           there is no extended card
    ExtensionRequired                   the card demands an extension the caller did not activate
    VersionNotSupported                 a protocol version we do not speak, or a contradiction
    MediaTypeNotSupported               the request body is not JSON by its content type
    BodyTooLarge                        the request body is over the limit
    BodyTooSlow                         the request body did not arrive in time
    Unauthenticated                     no credentials, or unknown ones
    NotAllowed                          a known caller without permission
    Overloaded                          a limit is reached; try again later
    Draining                            the gateway is stopping; try again later
    RouteNotFound                       no such address
    AccountNotRunning                   the address belongs to an account that is off
  AgentError                            the agent failed or refused
    AgentUnavailable                    the agent cannot be reached or started
    AgentFailed                         the agent answered with an error
  GatewayFault                          ours
    StoreUnavailable                    the store did not take the write
    Conflict                            the stored state is not what the writer expected
      LeaseLost                         the run ended, or another owner claimed it
      IllegalTransition                 the state of the task does not allow this step
      AlreadyExists                     a task, message or record with this id is stored already
      TaskDeleted                       the task to change is not stored any more
    CorruptRecord                       a stored record cannot be read
    SchemaTooNew                        the store was written by a newer version
    StoreLocked                         another process uses the store
    PortTaken                           another process listens on our port
    SettingsInvalid                     the configuration has problems
"""

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


class CallerError(GatewayError):
    """The request is wrong or not possible."""

    code = "invalid-request"


class ParseFailed(CallerError):
    """The bytes are not JSON."""

    code = "parse-error"


class InvalidRequest(CallerError):
    """JSON, but no request we can read."""

    code = "invalid-request"


class MethodNotFound(CallerError):
    """No such method."""

    code = "method-not-found"


class InvalidParams(CallerError):
    """Members are missing or of the wrong type; `problems` lists every one."""

    code = "invalid-params"

    def __init__(self, message: str, *, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class PartNotAccepted(CallerError):
    """A file part whose media type the agent does not take."""

    code = "part-not-accepted"


class MessageIdConflict(CallerError):
    """Another body under a message id that was used before."""

    code = "message-id-conflict"


class ContextMismatch(CallerError):
    """The contextId given is not the task's."""

    code = "context-mismatch"


class TaskNotFound(CallerError):
    """Unknown task, or one of another caller."""

    code = "task-not-found"


class TaskTerminal(CallerError):
    """The task has ended; nothing can be added to it."""

    code = "task-terminal"


class TaskNotCancelable(CallerError):
    """The task cannot be, or refuses to be, stopped."""

    code = "task-not-cancelable"


class TaskNotLive(CallerError):
    """The task is stored as active but is running nowhere."""

    code = "task-not-live"


class TaskUnbound(CallerError):
    """The task has no stored binding to an agent."""

    code = "task-unbound"


class UnsupportedOperation(CallerError):
    """The agent does not offer this."""

    code = "unsupported-operation"


class PushNotSupported(CallerError):
    """Push notifications are off for this agent."""

    code = "push-not-supported"


class PushConfigNotFound(CallerError):
    """The task has no push configuration with this id."""

    code = "push-config-not-found"


class ApprovalNotFound(CallerError):
    """No approval with this id is waiting."""

    code = "approval-not-found"


class ApprovalOver(CallerError):
    """It was decided already, or its time is over."""

    code = "approval-over"


class DeliveryNotFound(CallerError):
    """There is no delivery with this id."""

    code = "delivery-not-found"


class CallNotFound(CallerError):
    """There is no call with this id."""

    code = "call-not-found"


class PlanItemNotFound(CallerError):
    """There is no objective, plan or plan task with this id."""

    code = "plan-item-not-found"


class StatusChangeNotAllowed(CallerError):
    """An objective, a plan or a plan task cannot go from its status to the one asked for."""

    code = "status-change-not-allowed"


class ChangedMeanwhile(CallerError):
    """An objective or a plan was changed after the caller has read it."""

    code = "changed-meanwhile"


class PlanLimitExceeded(CallerError):
    """More plans in an objective, or tasks in a plan, than there may be."""

    code = "plan-limit-exceeded"


class DependencyNotValid(CallerError):
    """A dependency of a plan or a plan task is unknown, or leads back to where it began."""

    code = "dependency-not-valid"


class OutputNotAccepted(CallerError):
    """The answer has content, none of it in an accepted output mode."""

    code = "output-not-accepted"


class ExtendedCardNotConfigured(CallerError):
    """There is no extended card."""

    code = "extended-card-not-configured"


class ExtensionRequired(CallerError):
    """The card demands an extension that the caller did not activate."""

    code = "extension-required"


class VersionNotSupported(CallerError):
    """A protocol version we do not speak."""

    code = "version-not-supported"


class MediaTypeNotSupported(CallerError):
    """The request body is not JSON by its content type."""

    code = "media-type-not-supported"


class BodyTooLarge(CallerError):
    """The request body is over the limit."""

    code = "body-too-large"


class BodyTooSlow(CallerError):
    """The request body did not arrive in time."""

    code = "body-too-slow"


class Unauthenticated(CallerError):
    """No credentials, or none that we know."""

    code = "unauthenticated"


class NotAllowed(CallerError):
    """A known caller without permission."""

    code = "not-allowed"


class Overloaded(CallerError):
    """A limit is reached; `retry_after_s` says when to try again."""

    code = "overloaded"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message, details={"retryAfterSeconds": retry_after_s})
        self.retry_after_s = retry_after_s


class Draining(Overloaded):
    """The gateway is stopping; try again when it is back."""

    code = "draining"


class RouteNotFound(CallerError):
    """No such address."""

    code = "route-not-found"


class AccountNotRunning(CallerError):
    """The address belongs to an account that is off."""

    code = "account-not-running"


class AgentError(GatewayError):
    """The agent failed or refused."""

    code = "agent-failed"


class AgentUnavailable(AgentError):
    """The agent cannot be reached or started."""

    code = "agent-unavailable"


class AgentFailed(AgentError):
    """The agent answered with an error."""

    code = "agent-failed"


class GatewayFault(GatewayError):
    """Something on our side is wrong."""

    code = "internal-error"


class StoreUnavailable(GatewayFault):
    """The store did not take the write."""

    code = "store-unavailable"


class Conflict(GatewayFault):
    """The stored state is not what the writer expected; nothing was written."""

    code = "conflict"


class LeaseLost(Conflict):
    """The run ended, or another owner claimed it; the write was refused."""

    code = "lease-lost"


class IllegalTransition(Conflict):
    """The state of the task does not allow this step."""

    code = "illegal-transition"


class AlreadyExists(Conflict):
    """A task, message or record with this id is stored already."""

    code = "already-exists"


class TaskDeleted(Conflict):
    """The task to change is not stored any more."""

    code = "task-deleted"


class CorruptRecord(GatewayFault):
    """A stored record cannot be read."""

    code = "corrupt-record"


class SchemaTooNew(GatewayFault):
    """The store was written by a newer version of the gateway."""

    code = "schema-too-new"


class StoreLocked(GatewayFault):
    """Another process uses the store."""

    code = "store-locked"


class PortTaken(GatewayFault):
    """Another process listens on the gateway's port."""

    code = "port-taken"


class SettingsInvalid(GatewayFault):
    """The configuration has problems; `problems` lists every one with its path."""

    code = "settings-invalid"

    def __init__(self, message: str, *, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems
