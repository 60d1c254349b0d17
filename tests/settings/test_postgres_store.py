"""The settings of a store in PostgreSQL."""

import pytest

from openclaw_a2a.settings import StoreKind, effective_settings

URL = "postgres://gateway@db.example/agents?sslmode=verify-full"


def test_a_database_has_an_address_and_a_reference_to_its_password(load) -> None:
    given = {"kind": "postgres", "url": URL, "password": "env:SESAME", "schema": "mine"}
    loaded = load({"store": given}, environ={"SESAME": "open-sesame"})
    store = loaded.settings.store
    assert (store.kind, store.url, store.path) == (StoreKind.POSTGRES, URL, None)
    assert (store.password, store.schema, store.connections) == ("env:SESAME", "mine", 8)
    assert store.place == "postgres://gateway@db.example/agents (schema mine)"
    assert "open-sesame" not in str(effective_settings(loaded.settings))


def test_the_whole_address_may_be_a_reference(load) -> None:
    whole = {"DATABASE_URL": "postgres://gateway:sesame@db.example/agents"}
    given = {"kind": "postgres", "url": "env:DATABASE_URL"}
    loaded = load({"store": given}, environ=whole)
    assert loaded.settings.store.url == "env:DATABASE_URL"
    assert "sesame" not in str(effective_settings(loaded.settings))


@pytest.mark.parametrize(
    ("store", "key"),
    [
        ({}, "store.url"),
        ({"url": "mysql://db.example/x"}, "store.url"),
        ({"url": "postgres://me:sesame@db.example/x"}, "store.url"),
        ({"url": "postgres://me@db.example/x?password=sesame"}, "store.url"),
        ({"url": "env:NOT_SET"}, "store.url"),
        ({"url": URL, "password": "sesame"}, "store.password"),
        ({"url": URL, "password": "env:NOT_SET"}, "store.password"),
        ({"url": URL, "schema": "Not A Name"}, "store.schema"),
        ({"url": URL, "connections": 1}, "store.connections"),
        ({"url": URL, "pasword": "env:SESAME"}, "store.pasword"),
    ],
)
def test_what_is_wrong_with_a_database_is_said_where_it_is(problems, store, key) -> None:
    found = problems({"store": {"kind": "postgres", **store}})
    assert set(found) == {key}
    assert "sesame" not in found[key].message


def test_a_database_is_shared_by_those_that_say_so(load) -> None:
    given = {"kind": "postgres", "url": URL, "replicas": True, "replicaName": "left"}
    store = load({"store": given}).settings.store
    assert (store.replicas, store.replica_name) == (True, "left")


def test_replicas_have_calls_objectives_and_pairing(load) -> None:
    shared = {"kind": "postgres", "url": URL, "replicas": True}
    settings = load(
        {
            "store": shared,
            "opt": {"enabled": True},
            "tools": {"agentToAgent": {"enabled": True}},
            "channels": {"a2a": {"security": {"pairing": True}}},
        }
    ).settings
    assert settings.store.replicas
    assert settings.opt.enabled and settings.tools.agent_to_agent.enabled and settings.pairing


def test_replicas_need_the_ids_of_messages(problems) -> None:
    shared = {"kind": "postgres", "url": URL, "replicas": True}
    found = problems({"store": shared, "retention": {"messageSeconds": 0}})
    assert set(found) == {"retention.messageSeconds"}
