"""The router: exact paths, patterns and prefixes."""

import pytest

from openclaw_a2a.http.router import ANY_METHOD, Router


def _router() -> Router[str]:
    router = Router[str]()
    router.add_route("GET", "/tasks", "list")
    router.add_route("GET", "/tasks/{}", "get")
    router.add_route("POST", "/tasks/{}:cancel", "cancel")
    router.add_route("POST", "/tasks/{}", "change")
    router.add_route("GET", "/tasks/{}/configs", "list configs")
    router.add_route("GET", "/tasks/{}/configs/{*}", "get config")
    router.add_route(ANY_METHOD, "/tools/{*}", "tools")
    router.add_route(ANY_METHOD, "/tools/special/{*}", "special tools")
    return router


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/tasks", ("list", ())),
        ("GET", "/tasks/1", ("get", ("1",))),
        ("GET", "/tasks/a:b", ("get", ("a:b",))),
        ("POST", "/tasks/a:b:cancel", ("cancel", ("a:b",))),
        ("POST", "/tasks/a:b", ("change", ("a:b",))),
        ("GET", "/tasks/a:cancel", None),
        ("GET", "/tasks/1/configs", ("list configs", ("1",))),
        ("GET", "/tasks/1/configs/a/b", ("get config", ("1", "a/b"))),
        ("PUT", "/tools/x", ("tools", ("x",))),
        ("GET", "/tools/", ("tools", ("",))),
        ("GET", "/tools/special/x/y", ("special tools", ("x/y",))),
        ("POST", "/tasks", None),
        ("GET", "/tasks/", None),
        ("GET", "/tasks/1/other", None),
        ("GET", "/tools", None),
        ("GET", "/", None),
        ("GET", "", None),
    ],
)
def test_a_request_finds_its_handler_and_the_values_of_its_placeholders(
    method: str, path: str, found: tuple[str, tuple[str, ...]] | None
) -> None:
    assert _router().find(method, path) == found


def test_a_later_route_for_the_same_path_replaces_the_earlier_one() -> None:
    router = _router()
    router.add_route("GET", "/tasks", "other list")
    assert router.find("GET", "/tasks") == ("other list", ())
