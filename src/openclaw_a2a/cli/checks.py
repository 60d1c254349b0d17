"""Checks of the gateway on this machine, with its settings."""

import asyncio
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import anyio.to_thread
import httpx2
import msgspec

from openclaw_a2a.agents.process.child import expand_directory
from openclaw_a2a.agents.process.command_agent import CommandOptions
from openclaw_a2a.app.lifecycle import listen
from openclaw_a2a.cli.check_result import Check, CheckResult, split_advice
from openclaw_a2a.cli.commands.gateway import database_address
from openclaw_a2a.cli.openclaw_checks import check_openclaw, check_plugin
from openclaw_a2a.model.errors import (
    GatewayError,
    PortTaken,
    SchemaTooNew,
    StoreLocked,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.net.http_client import SyncHttpClient
from openclaw_a2a.remote.config import read_outbound
from openclaw_a2a.remote.result import RemoteAgentFailed
from openclaw_a2a.settings import (
    AgentSettings,
    CheckedSettings,
    RunningGateway,
    ServerSettings,
    StoreKind,
    StoreSettings,
    base_url,
    find_running_gateways,
    read_command_environment,
)
from openclaw_a2a.settings.sources import process_environment
from openclaw_a2a.store import create_store
from openclaw_a2a.store.rules import PROBE_BYTES, check_free_space

if TYPE_CHECKING:
    from openclaw_a2a.library.remote_agents import RemoteAgents

_OLDEST_PYTHON = (3, 11)
_ANSWER_S = 2.0
_TARGET_S = 10.0
_MOST_BYTES = 4096
_LITTLE_SPACE = 100 * 1024 * 1024
_OLD_SCHEMA = "has an older schema; the next start upgrades it"
_SEE_UPGRADE = "see it first with: openclaw-a2a db upgrade --plan"
_CORRECT = "correct it, then look again with: openclaw-a2a config check"


class _Readiness(msgspec.Struct, frozen=True):
    """The part of `/readyz` that is checked."""

    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class _Health(msgspec.Struct, frozen=True):
    """The part of `/healthz` that is checked."""

    status: str = ""
    version: str | None = None


_Answer = TypeVar("_Answer", _Readiness, _Health)


async def run_checks(examined: CheckedSettings, run_agents: bool) -> list[CheckResult]:
    """Every check; with `run_agents` each OpenClaw agent runs a turn."""
    settings = examined.loaded.settings
    stores = dict.fromkeys(
        [settings.store, *(one.task_store for one in settings.accounts if one.task_store)]
    )
    own = find_own_gateway(examined)
    return [
        check_python(),
        *check_settings_file(examined),
        *[await check_store(one, settings.data, own) for one in stores],
        *[await anyio.to_thread.run_sync(check_disk, one) for one in stores if one.path],
        await anyio.to_thread.run_sync(check_port, settings.server, own),
        *await anyio.to_thread.run_sync(list, check_public_address(examined, own)),
        *check_programs(settings.agents),
        *await check_issuers(examined),
        *await check_targets(examined),
        *await check_openclaw(examined, run_agents=run_agents),
        *await anyio.to_thread.run_sync(check_plugin, examined, own),
    ]


def check_python() -> CheckResult:
    """The interpreter is new enough."""
    check, version = Check("gateway", "python"), platform.python_version()
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return check.ok(version)
    return check.broken(version, "install Python 3.11 or newer")


def check_settings_file(examined: CheckedSettings) -> list[CheckResult]:
    """Every problem and warning of the settings."""
    check, loaded = Check("gateway", "settings"), examined.loaded
    found = [
        check.broken(f"{one.path}: {one.message}", _CORRECT)
        for one in loaded.invalid(examined.problems).problems
    ]
    found += [
        check.note(f"{one.path}: {one.message}")
        for one in loaded.warnings
        if one.path != "openclaw"
    ]
    where = str(loaded.path) if loaded.path else "none written; the defaults are used"
    return found or [check.ok(where)]


def find_own_gateway(examined: CheckedSettings) -> RunningGateway | None:
    """The gateway of these settings, if it runs; not another one that uses the same data folder."""
    loaded = examined.loaded
    running = find_running_gateways(loaded.settings.data)
    named = read_command_environment().url
    for one in running:
        if one.port == loaded.settings.server.port or named in (one.address, one.public_address):
            return one
    # Started with `up --port` where the settings name no port.
    return running[0] if running and "server.port" not in loaded.origins else None


async def check_store(
    settings: StoreSettings, data: Path, own: RunningGateway | None
) -> CheckResult:
    """The store can be opened and written, or our gateway has it; nothing in it is changed."""
    check, path, kind = Check("gateway", "store"), settings.path, settings.kind.value
    if settings.kind is StoreKind.MEMORY:
        return check.note("in memory; nothing survives a stop", "set store.kind")
    # The answer of a running gateway is more reliable than a look at the store from here.
    readiness = None if own is None else await anyio.to_thread.run_sync(_read_readiness, own)
    if readiness is not None:
        if reason := _store_failure(readiness, settings):
            detail, fix = split_advice(reason)
            return check.broken(f"{kind}: {detail}", fix)
        if readiness.warnings:
            detail, fix = split_advice(readiness.warnings[0])
            return check.note(f"{kind}: {detail}", fix)
    if path is None:
        return await _check_database(check, settings, own)
    return await _check_file(check, settings, path, data=data, own=own)


async def _check_file(
    check: Check, settings: StoreSettings, path: Path, *, data: Path, own: RunningGateway | None
) -> CheckResult:
    kind = settings.kind.value
    shown = f"{kind}, {path}"
    if (found := _check_rights(check, shown, path)) is not None:
        return found
    try:
        if await _open_store(settings, path):
            return check.ok(shown)
    except StoreLocked as error:
        pid, folders = str(error.details.get("pid")), [data, path.parent]
        return _check_locked_store(check, shown, pid, folders=folders, own=own)
    except GatewayError as error:
        fix = "move the file away, or use another with store.path"
        return _report_store_error(check, kind, error, fix)
    return check.note(f"{shown} {_OLD_SCHEMA}", _SEE_UPGRADE)


def _check_rights(check: Check, shown: str, path: Path) -> CheckResult | None:
    """The result for a file that is not there yet, or may not be written."""
    if not path.exists():  # the first start creates it, so its folder must be writable
        folder = next((one for one in path.parents if one.exists()), path.parent)
        if os.access(folder, os.W_OK):
            return check.ok(f"{shown}, made by the first start")
        return check.broken(f"{folder} cannot be written", "set data to another folder")
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return check.broken(f"{shown} cannot be written", f"chown or chmod {path}")
    return None


async def _check_database(
    check: Check, settings: StoreSettings, own: RunningGateway | None
) -> CheckResult:
    """The database can be reached, and its schema used; nothing in it is changed."""
    shown = f"postgres, {settings.place}"
    try:
        address = database_address(settings)
        from openclaw_a2a.store.postgres.link import find_holder
        from openclaw_a2a.store.postgres.migrate import plan_database_upgrade

        steps = await plan_database_upgrade(address)
        holder = await find_holder(address, shares=settings.replicas)
    except GatewayError as error:
        return _report_store_error(check, "postgres", error, "correct store")
    if holder is not None:
        pid = str(holder.details.get("pid"))
        if own is not None and str(own.pid) == pid:
            return check.ok(f"{shown}, in use by our gateway (process {pid}, {own.address})")
        return check.broken(*split_advice(holder.message))
    if steps and steps[0].startswith("0001"):
        return check.ok(f"{shown}, its tables are made by the first start")
    if steps:
        return check.note(f"{shown} {_OLD_SCHEMA}", _SEE_UPGRADE)
    return check.ok(shown)


def _report_store_error(check: Check, kind: str, error: GatewayError, fix: str) -> CheckResult:
    """The result for a store that cannot be opened; `fix` where the error has no advice."""
    detail, advice = split_advice(error.message)
    if isinstance(error, SchemaTooNew):  # its advice is a sentence of its own
        detail, _, advice = error.message.rpartition(". ")
    return check.broken(f"{kind}: {detail}", advice or fix)


def _check_locked_store(
    check: Check, shown: str, pid: str, *, folders: list[Path], own: RunningGateway | None
) -> CheckResult:
    if own is not None and str(own.pid) == pid:
        return check.ok(f"{shown}, in use by our gateway (process {pid}, {own.address})")
    running = [one for folder in folders for one in find_running_gateways(folder)]
    address = next((one.address for one in running if str(one.pid) == pid), "")
    holder = f"process {pid}" + (f", the gateway at {address}" if address else "")
    fix = "stop it, or use another data folder: openclaw-a2a up --data DIR"
    return check.broken(f"{shown} is locked by {holder}", fix)


def check_disk(settings: StoreSettings) -> CheckResult:
    """The disk of a store has room, and takes a write of the size of a message."""
    check, path = Check("gateway", "disk"), settings.path or Path()
    # A json-file store is a folder; the one that is there takes what the first start makes.
    places = (path, *path.parents) if settings.kind is StoreKind.JSON_FILE else path.parents
    folder = next(one for one in places if one.is_dir())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b" " * PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
        disk = os.statvfs(folder)
        check_free_space(folder)
    except OSError as error:
        text = f"{folder} takes no writes: {error.strerror}"
        fix = "free some space, or set store.path to another disk"
        return check.broken(text, fix)
    except StoreUnavailable as error:
        return check.broken(*split_advice(error.message))
    free = disk.f_bavail * disk.f_frsize
    shown = f"{free / 1024**3:.1f} GiB free for {folder}"
    if free < _LITTLE_SPACE:
        shown = f"only {free // 1024**2} MiB free for {folder}"
        return check.note(shown, "free some space before it is full")
    return check.ok(shown)


async def _open_store(settings: StoreSettings, path: Path) -> bool:
    """Open the store and close it again; False when opening it would upgrade its schema.

    Raises: GatewayError.
    """
    if settings.kind is StoreKind.SQLITE:
        from openclaw_a2a.store.sqlite import migrate

        # Asked first: opening would upgrade the schema, and a check changes nothing.
        if await anyio.to_thread.run_sync(migrate.plan_upgrade, path):
            return False
    store = create_store(settings.kind.value, path=str(path))
    await store.open()
    try:
        await store.check()
    finally:
        await store.close()
    return True


def check_port(server: ServerSettings, own: RunningGateway | None) -> CheckResult:
    """The port is free, or our own gateway has it."""
    check = Check("gateway", "port")
    if own is not None:
        version = _gateway_version(own.address)
        if version is not None:
            text = f"our gateway runs at {own.address} (process {own.pid}, version {version})"
            return check.ok(text)
        text = f"our gateway (process {own.pid}) does not answer at {own.address}"
        return check.broken(text, "look at its log, or restart it")
    place = f"{server.host}:{server.port}"
    if server.port == 0:
        return check.ok("any free port")
    try:
        listen(server.host, server.port).close()
    except PortTaken as error:
        version = _gateway_version(base_url(server.host, server.port))
        text = error.message.partition(";")[0]
        if version is not None:
            text = f"a gateway with another data folder runs at {place} (version {version})"
        fix = "stop what listens there, or set server.port"
        return check.broken(text, fix)
    except (OSError, OverflowError) as error:
        return check.broken(f"{place}: {error}", "set server.host")
    return check.ok(f"{place} is free")


def check_public_address(
    examined: CheckedSettings, own: RunningGateway | None
) -> Iterator[CheckResult]:
    """The addresses on the cards lead to our gateway, as far as that can be seen from here."""
    check, server = Check("gateway", "public address"), examined.loaded.settings.server
    accounts = [one for one in examined.loaded.settings.accounts if one.is_running]
    local = {base_url(server.host, server.port), own.address if own else None}
    addresses = dict.fromkeys(one.public_base_url for one in accounts if one.public_base_url)
    for address in addresses:
        host = urlsplit(address).hostname or ""
        if address in local:
            continue
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            text = f"{host} of the public address {address} is not known here"
            fix = "correct server.publicBaseUrl, or the name's DNS entry"
            yield check.note(text, fix)
            continue
        if own is None:
            yield check.ok(f"{address}; not tried, because the gateway does not run")
        elif _gateway_version(address) is None:
            text = f"our gateway does not answer at its public address {address} from here"
            fix = "check the proxy in front of it, or correct server.publicBaseUrl"
            yield check.note(text, fix)
        else:
            yield check.ok(address)


def check_programs(agents: Mapping[AgentId, AgentSettings]) -> Iterator[CheckResult]:
    """The programs of `command` agents are there, and may be run."""
    for name, agent in agents.items():
        if agent.adapter != "command":
            continue
        try:
            options = msgspec.convert(agent.options, CommandOptions)
        except msgspec.ValidationError:
            continue  # reported with the settings already
        check, program = Check("agents", f"agent {name}"), options.command[0]
        folder = Path(expand_directory(options.cwd) or ".")
        # The name is looked up as the start of the program does: in PATH, or from its folder.
        path = {**process_environment(None), **options.env}.get("PATH")
        place = str(folder / program) if os.sep in program else program
        found = shutil.which(place, path=path)
        if not folder.is_dir():
            text = f"its working directory {folder} does not exist"
            yield check.broken(text, f"create it, or correct agents.{name}.cwd")
        elif found is None:
            text = f"the program {program} was not found, or may not be run"
            fix = f"install it, make it executable, or correct agents.{name}.command"
            yield check.broken(text, fix)
        else:
            yield check.ok(found)


async def check_issuers(examined: CheckedSettings) -> list[CheckResult]:
    """The keys of the issuers of tokens can be fetched."""
    issuers = examined.loaded.settings.oidc
    if not issuers or any(".security.oidc" in one.path for one in examined.problems):
        return []
    from openclaw_a2a.app.wiring import oidc

    findings: list[CheckResult] = []
    for one, failure in zip(issuers, await oidc.probe_issuers(issuers), strict=True):
        check = Check("gateway", f"issuer {one.name}")
        text = f"{failure}; callers with its tokens are answered with 503"
        fix = "correct channels.a2a.security.oidc, or see why the issuer does not answer"
        findings.append(check.ok(one.issuer) if failure is None else check.broken(text, fix))
    return findings


async def check_targets(examined: CheckedSettings) -> list[CheckResult]:
    """The cards of the remote targets can be read, and the targets accept our credentials."""
    settings = examined.loaded.settings
    is_invalid = any(one.path.startswith("outbound") for one in examined.problems)
    if is_invalid or not settings.outbound.get("targets"):
        return []
    from openclaw_a2a.library.remote_agents import RemoteAgents

    aliases = read_outbound(settings.outbound).config.aliases
    async with RemoteAgents(settings) as remote:
        return list(await asyncio.gather(*[_check_target(remote, one) for one in aliases]))


async def _check_target(remote: "RemoteAgents", alias: str) -> CheckResult:
    check = Check("targets", f"target {alias}")
    fix = f"see: openclaw-a2a targets check {alias}"
    try:
        async with asyncio.timeout(_TARGET_S):
            found = await remote.check(alias)
    except RemoteAgentFailed as error:
        return check.note(str(error), fix)
    except TimeoutError:
        return check.note(f"no answer within {_TARGET_S:g} s", fix)
    if found.is_let_in:
        return check.ok(f"{found.name or 'an agent'} at {found.url}")
    if found.is_let_in is False:
        return check.broken(f"{found.url} does not let us in: {found.trouble}", fix)
    return check.note(f"{found.url}: {found.trouble}", fix)


def _read_readiness(own: RunningGateway) -> _Readiness | None:
    return _ask_gateway(f"{own.address}/readyz", _Readiness)


def _store_failure(readiness: _Readiness, store: StoreSettings) -> str | None:
    """Why our running gateway cannot use this store; None when it says nothing about it."""
    reasons = readiness.reasons
    # The reasons of a database name its host: the address of the settings may be a reference.
    is_database = store.kind is StoreKind.POSTGRES
    names = ("the database at", "postgres://") if is_database else (store.place,)
    return next((one for one in reasons if any(name in one for name in names)), None)


def _gateway_version(address: str) -> str | None:
    """The version of the gateway that answers there; None when it is none of ours."""
    answer = _ask_gateway(f"{address}/healthz", _Health)
    return answer.version if answer is not None and answer.status == "ok" else None


def _ask_gateway(url: str, kind: type[_Answer]) -> _Answer | None:
    """What a gateway answers about itself; None when nothing answers, or something else."""
    try:
        with SyncHttpClient(timeout=_ANSWER_S, max_response_bytes=_MOST_BYTES) as http:
            return msgspec.json.decode(http.get(url).content, type=kind)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError):
        return None
