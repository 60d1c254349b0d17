"""Which protocol generation a request speaks: its method decides, its header must agree."""

from enum import Enum

from openclaw_a2a.model.errors import MethodNotFound, VersionNotSupported


class ProtocolVersion(Enum):
    """A protocol generation, by the version it is called on the wire."""

    V1 = "1.0"
    V03 = "0.3"


_WIRES = {wire.value: wire for wire in ProtocolVersion}

METHODS_V1 = frozenset(
    {
        "SendMessage",
        "SendStreamingMessage",
        "GetTask",
        "ListTasks",
        "CancelTask",
        "SubscribeToTask",
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
        "GetExtendedAgentCard",
    }
)
METHODS_V03 = frozenset(
    {
        "message/send",
        "message/stream",
        "tasks/get",
        "tasks/cancel",
        "tasks/resubscribe",
        "tasks/pushNotificationConfig/set",
        "tasks/pushNotificationConfig/get",
        "tasks/pushNotificationConfig/list",
        "tasks/pushNotificationConfig/delete",
        "agent/getAuthenticatedExtendedCard",
    }
)


def pick_wire(method: str, header: str | None) -> ProtocolVersion:
    """The generation of a JSON-RPC method, when the A2A-Version header does not contradict.

    Raises:
        VersionNotSupported: the header names a version we do not speak.
        MethodNotFound: nobody has this method, or the header's version does not.
    """
    claimed = read_version(header)
    if method in METHODS_V1:
        wire = ProtocolVersion.V1
    elif method in METHODS_V03:
        wire = ProtocolVersion.V03
    else:
        raise MethodNotFound(f"There is no method {method[:100]!r}. See the agent card's version.")
    if claimed not in (None, wire):
        raise MethodNotFound(
            f"The method {method!r} belongs to A2A {wire.value}, but the A2A-Version header says "
            f"{claimed.value}. Call the method of that version or change the header."
        )
    return wire


def read_version(header: str | None) -> ProtocolVersion | None:
    """The generation that a version header names; None when it is absent or empty.

    Raises:
        VersionNotSupported: it names a version we do not speak.
    """
    version = header.strip() if header else ""
    if not version:
        return None
    wire = _WIRES.get(version)
    if wire is None:
        raise VersionNotSupported(
            f"A2A version {version[:40]!r} is not spoken here. Use 1.0 or 0.3.",
            details={"supportedVersions": list(_WIRES)},
        )
    return wire
