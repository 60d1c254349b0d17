"""Which protocol version a request uses: its method decides, its header must not contradict."""

import re
from enum import Enum

from openclaw_a2a.model.errors import MethodNotFound, VersionNotSupported


class ProtocolVersion(Enum):
    """A supported version of A2A, by the value of its A2A-Version header."""

    V1 = "1.0"
    V03 = "0.3"


_PATCH = re.compile(r"(?<=\.\d)\.[0-9]+\Z")
_VERSIONS = {version.value: version for version in ProtocolVersion}

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


def version_of_method(method: str, header: str | None) -> ProtocolVersion:
    """The version of a JSON-RPC method, unless the A2A-Version header contradicts.

    Raises:
        VersionNotSupported: the header names a version that is not supported.
        MethodNotFound: no version has this method, or the header's version does not.
    """
    claimed = read_version(header)
    if method in METHODS_V1:
        version = ProtocolVersion.V1
    elif method in METHODS_V03:
        version = ProtocolVersion.V03
    else:
        raise MethodNotFound(f"There is no method {method[:100]!r}. See the agent card's version.")
    if claimed not in (None, version):
        raise MethodNotFound(
            f"The method {method!r} belongs to A2A {version.value}, but the A2A-Version header "
            f"says {claimed.value}. Call the method of that version or change the header."
        )
    return version


def read_version(header: str | None) -> ProtocolVersion | None:
    """The version that a header names; None when it is absent or empty.

    Only major and minor count: `1.0.1` is `1.0`.

    Raises:
        VersionNotSupported: it names a version that is not supported.
    """
    name = header.strip() if header else ""
    if not name:
        return None
    version = _VERSIONS.get(_PATCH.sub("", name))
    if version is None:
        raise VersionNotSupported(
            f"A2A version {name[:40]!r} is not spoken here. Use 1.0 or 0.3.",
            details={"supportedVersions": list(_VERSIONS)},
        )
    return version
