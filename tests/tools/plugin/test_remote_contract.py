"""The letter of the tool's contract where the host of an agent has a part in it."""

import asyncio

import pytest


@pytest.mark.requirement("remote.error.aborted")
async def test_an_abort_reads_like_a_deadline(host, scripted) -> None:
    scripted.stays_open = True
    await host.register(url=scripted.url)
    call = host.begin({"action": "watch"})
    assert await asyncio.to_thread(scripted.is_asked.wait, 20)
    host.abort(call)
    told = (await host.result_of(call))["details"]
    assert (told["ok"], told["operation"], told["action"]) == (False, "remote_agent", "watch")
    assert told["error"]["code"] == "A2A_SDK_ERROR"
    assert told["error"]["message"] == "request timed out"
    hint = told["error"]["details"]["hint"]
    assert "timeout_ms" in hint and "defaults.timeoutMs" in hint


@pytest.mark.requirement("remote.register.mode-first", "remote.log.load")
async def test_a_partial_load_of_a_plugin_that_offers_nothing_says_only_that_it_waits(
    host, scripted
) -> None:
    scripted.table = {"tools": []}
    assert await host.register("discovery", url=scripted.url, tools=[]) == []
    logged = [line["log"] for line in host.lines if "log" in line]
    assert logged == ['a2a.plugin.registration.deferred {"mode":"discovery"}']
    await host.register("full", url=scripted.url)
    line = await host.wait_for(lambda line: line.get("log", "").startswith("a2a.plugin.disabled"))
    assert line["log"] == f'a2a.plugin.disabled {{"tools":[],"url":"{scripted.url}"}}'
    assert any(line.get("log", "").startswith("a2a.plugin.loaded {") for line in host.lines)
