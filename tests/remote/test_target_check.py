"""The credentials that a card of either protocol version requires."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.remote.target_status import auth_wanted

OLD = {
    "securitySchemes": {
        "a": {"type": "http", "scheme": "Bearer"},
        "b": {"type": "apiKey", "name": "x-key", "in": "header"},
        "c": {"type": "oauth2", "flows": {}},
    }
}
NEW = {
    "securitySchemes": {
        "a": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
        "b": {"apiKeySecurityScheme": {"name": "x-key", "location": "header"}},
        "c": {"oauth2SecurityScheme": {"flows": {}}},
    }
}


@pytest.mark.parametrize(
    ("card", "wanted"),
    [
        ({}, ()),
        (OLD, ()),
        ({**OLD, "security": [{"a": []}]}, ("bearer token",)),
        ({**OLD, "security": [{"a": []}, {"b": []}]}, ("bearer token", "API key (x-key)")),
        ({**OLD, "security": [{"a": [], "c": []}]}, ("bearer token and OAuth 2",)),
        ({**NEW, "securityRequirements": [{"schemes": {"a": {}}}]}, ("bearer token",)),
        (
            {**NEW, "securityRequirements": [{"schemes": {"b": {"list": []}}}]},
            ("API key (x-key)",),
        ),
        ({"security": [{"mystery": []}]}, ("mystery",)),
    ],
)
def test_required_credentials_are_read_from_the_card(
    card: dict[str, object], wanted: tuple[str, ...]
) -> None:
    assert auth_wanted(card) == wanted


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(json_values, json_values)
def test_any_card_can_be_checked(schemes: object, wanted: object) -> None:
    card = {"securitySchemes": schemes, "security": wanted, "securityRequirements": wanted}
    assert isinstance(auth_wanted(card), tuple)
