"""The protocol version of a request."""

import pytest

from openclaw_a2a.model.errors import MethodNotFound, VersionNotSupported
from openclaw_a2a.protocol.versions import (
    METHODS_V03,
    METHODS_V1,
    ProtocolVersion,
    version_of_method,
)


def test_the_versions_share_no_method():
    assert len(METHODS_V1) == 11
    assert len(METHODS_V03) == 10
    assert not METHODS_V1 & METHODS_V03


@pytest.mark.parametrize("header", [None, "", "  "])
def test_the_method_decides_when_there_is_no_header(header):
    assert all(version_of_method(method, header) is ProtocolVersion.V1 for method in METHODS_V1)
    assert all(version_of_method(method, header) is ProtocolVersion.V03 for method in METHODS_V03)


def test_a_header_that_agrees_is_fine():
    assert version_of_method("SendMessage", " 1.0 ") is ProtocolVersion.V1
    assert version_of_method("message/send", "0.3") is ProtocolVersion.V03


@pytest.mark.parametrize(
    ("header", "method"),
    [("1.0.0", "SendMessage"), ("1.0.1", "SendMessage"), ("0.3.0", "message/send")],
)
def test_only_major_and_minor_count(header, method):
    assert version_of_method(method, header) is version_of_method(method, None)


@pytest.mark.parametrize(
    "header",
    ["1.7", "2.0", "0.2", "1.7.0", "1", "x", "1.0,0.3", "1.0.", "1.0.x", "1.0.0.0", "1.0.0-rc1"],
)
def test_an_unsupported_version_is_refused_first(header):
    for method in ("SendMessage", "message/send", "unknown"):
        with pytest.raises(VersionNotSupported, match=r"1\.0 or 0\.3"):
            version_of_method(method, header)


@pytest.mark.parametrize(("method", "header"), [("SendMessage", "0.3"), ("tasks/get", "1.0")])
def test_a_header_that_contradicts_the_method_is_method_not_found(method, header):
    with pytest.raises(MethodNotFound) as caught:
        version_of_method(method, header)
    assert all(word in caught.value.message for word in (method, "1.0", "0.3"))


def test_an_unknown_method_is_named():
    with pytest.raises(MethodNotFound, match="tasks/frobnicate"):
        version_of_method("tasks/frobnicate", None)
