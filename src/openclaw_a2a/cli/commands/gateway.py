"""`up`, `doctor`, `config`, `db` and `version`: start the gateway, look after its installation."""

import asyncio
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.errors import (
    DONE,
    FAILED,
    INTERRUPTED,
    USAGE_ERROR,
    describe_failure,
    exit_code,
)
from openclaw_a2a.cli.options import ConfigFlag, DataFlag, JsonFlag, data_override, switch
from openclaw_a2a.cli.render.terminal import print_data, print_json, print_message, print_table
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    PortTaken,
    Problem,
    SettingsInvalid,
    StoreLocked,
)
from openclaw_a2a.model.ids import Json
from openclaw_a2a.settings import (
    CheckedSettings,
    LogSettings,
    Settings,
    StoreKind,
    StoreSettings,
    check_settings,
    describe_settings,
    effective_settings,
    find_running_gateways,
    load_settings,
    settings_schema,
)

if TYPE_CHECKING:
    from openclaw_a2a.store.postgres.address import Address
    from openclaw_a2a.store.postgres.transfer import ReportTable


def up(
    *,
    config: ConfigFlag = None,
    host: Annotated[str | None, Parameter(help="Address to listen on.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on.")] = None,
    store: Annotated[
        str | None, Parameter(help="File of a SQLite store, or postgres://USER@HOST/NAME.")
    ] = None,
    data: DataFlag = None,
) -> int:
    """Start the gateway and serve until it is stopped (Ctrl-C).

    Without any settings the agents of the OpenClaw on this machine answer at
    http://127.0.0.1:9900, or an echo agent if there is no OpenClaw.
    """
    given: dict[str, Json] = {"server.host": host, "server.port": port, **_store_override(store)}
    overrides = {key: value for key, value in given.items() if value is not None}
    checked = check_settings(config, overrides=overrides | data_override(data))

    from openclaw_a2a.app.logging import is_for_people, logging_to_stderr

    settings = checked.loaded.settings.log
    try:
        with logging_to_stderr(settings):  # the check loads the functions of agents already
            return _serve(complete_check(checked))
    except (Exception, KeyboardInterrupt) as error:
        if is_for_people(settings):
            raise
        return log_not_started(error, settings)


def log_not_started(error: BaseException, settings: LogSettings) -> int:
    """Log why there is no gateway, for programs: they expect nothing but JSON lines; exit code."""
    from openclaw_a2a.app.logging import logging_to_stderr

    code, failure = (
        FAILED,
        {"code": GatewayFault.code, "reason": f"{type(error).__name__}: {error}"},
    )
    if isinstance(error, GatewayError):
        code, failure = exit_code(error), describe_failure(error)
        failure["reason"] = failure.pop("message")
    elif isinstance(error, KeyboardInterrupt):
        code, failure = INTERRUPTED, {"code": "interrupted", "reason": "interrupted with Ctrl-C"}
    with logging_to_stderr(settings):
        unexpected = error if failure["code"] == GatewayFault.code else None
        get_logger(__name__).error("gateway.not_started", **failure, exc_info=unexpected)
    return code


def _store_override(store: str | None) -> dict[str, Json]:
    """The store of the command line, as an override of the settings."""
    if store is None:
        return {}
    if "://" in store:
        return {"store.kind": StoreKind.POSTGRES.value, "store.url": store}
    path = str(Path(store).expanduser().absolute())
    return {"store.kind": StoreKind.SQLITE.value, "store.path": path}


def _serve(examined: CheckedSettings) -> int:
    """Serve until it is stopped. Raises: SettingsInvalid, PortTaken, StoreLocked and others."""
    if examined.problems:
        for warning in examined.loaded.warnings:
            get_logger(__name__).warning(
                "settings.warning", path=warning.path, reason=warning.message
            )
        raise examined.loaded.invalid(examined.problems)

    from openclaw_a2a.app import serve_gateway

    try:
        return serve_gateway(examined.loaded)
    except PortTaken as error:
        for one in find_running_gateways(examined.loaded.settings.data):
            if one.port == examined.loaded.settings.server.port:
                error.details["nextStep"] = (
                    f"The gateway of this data folder runs there (process {one.pid}). Stop it, or "
                    "start another one with --port PORT --data DIR."
                )
        raise
    except StoreLocked as error:
        for one in find_running_gateways(examined.loaded.settings.data):
            if str(one.pid) == error.details.get("pid"):
                other = "database" if "store" in error.details else "--data DIR"
                error.details["nextStep"] = (
                    f"It is the gateway at {one.address}: stop it, or use another {other}."
                )
        raise


def doctor(
    *,
    ask: Annotated[
        bool, switch("Have each OpenClaw agent answer a short turn, which costs what a turn costs.")
    ] = False,
    config: ConfigFlag = None,
    data: DataFlag = None,
    as_json: JsonFlag = False,
) -> int:
    """Check what the gateway needs, and print how to fix problems.

    That is Python, settings, store, port, public address, programs of agents, remote targets and
    OpenClaw. Nothing is changed. The exit code is 1 when something is broken.
    """
    import anyio

    from openclaw_a2a.cli.check_result import CheckStatus, print_checks, summarize_checks
    from openclaw_a2a.cli.checks import run_checks

    examined = complete_check(check_settings(config, overrides=data_override(data)))
    findings = anyio.run(run_checks, examined, ask)
    is_broken = any(finding.status is CheckStatus.BROKEN for finding in findings)
    if as_json:
        print_json({"ok": not is_broken, "findings": findings})
    else:
        print_checks(findings)
        print_data()
        print_data(summarize_checks(findings))
    return FAILED if is_broken else DONE


config_app = App(name="config", help="Check and show the settings; print their schema.")

_ORIGIN = Annotated[bool, switch("Say where each setting comes from.")]


@config_app.command
def check(*, config: ConfigFlag = None, as_json: JsonFlag = False) -> int:
    """Check the settings and tell every problem; nothing is started."""
    examined = complete_check(check_settings(config))
    loaded, found = examined.loaded, examined.problems
    warnings = (*loaded.warnings, *(() if found else _issuer_warnings(loaded.settings)))
    error = loaded.invalid(found)
    error.details["nextStep"] = "Correct the settings and check again."
    if as_json:
        document = {
            "ok": not found,
            "path": str(loaded.path) if loaded.path else None,
            "problems": error.problems,
            "warnings": warnings,
        }
        print_json({**document, "error": describe_failure(error)} if found else document)
        return USAGE_ERROR if found else DONE
    # Also before an error: perhaps it is the other file that was meant.
    for warning in warnings:
        print_message(f"warning {warning.path}: {warning.message}", "yellow")
    if found:
        raise error
    where = loaded.path or "no settings file; defaults and environment"
    print_data(f"The settings are right ({where}).")
    return DONE


@config_app.command(name="show")
def show_settings(
    *, origin: _ORIGIN = False, config: ConfigFlag = None, as_json: JsonFlag = False
) -> int:
    """Show the settings in force; secrets stay hidden."""
    loaded = load_settings(config)
    rows = describe_settings(loaded.settings, loaded.origins)
    if as_json:
        print_json(rows if origin else effective_settings(loaded.settings))
        return DONE
    cells = [(row.path, row.origin, _value_text(row.value)) for row in rows]
    print_table(cells if origin else [(path, value) for path, _, value in cells])
    return DONE


@config_app.command
def schema(*, as_json: JsonFlag = True) -> int:
    """Print the JSON Schema of the settings file, for editors (with or without --json)."""
    print_json(settings_schema(), pretty=as_json)
    return DONE


def complete_check(examined: CheckedSettings) -> CheckedSettings:
    """The settings with what only their users know: options of agents, and the remote targets."""
    loaded, problems = examined.loaded, examined.problems
    problems += _agent_problems(loaded.settings, problems)
    if loaded.settings.outbound:
        from openclaw_a2a.remote.config import read_outbound

        try:
            warnings = (*loaded.warnings, *read_outbound(loaded.settings.outbound).warnings)
            loaded = msgspec.structs.replace(loaded, warnings=warnings)
        except SettingsInvalid as invalid:
            problems += invalid.problems
    return CheckedSettings(loaded, problems)


def _issuer_warnings(settings: Settings) -> list[Problem]:
    """Issuers whose keys cannot be fetched now: the gateway starts without them."""
    if not settings.oidc:
        return []
    from openclaw_a2a.app.wiring.oidc import probe_issuers

    failures = asyncio.run(probe_issuers(settings.oidc))
    path = "channels.a2a.security.oidc"
    return [Problem(path, one, "unreachable") for one in failures if one is not None]


def _agent_problems(settings: Settings, known: Iterable[Problem]) -> tuple[Problem, ...]:
    """What is wrong with the options of the agents' adapters, besides what is known already."""
    from openclaw_a2a.agents import build_agent

    nameless = {one.path for one in known}
    problems: list[Problem] = []
    for agent_id, agent in settings.agents.items():
        path = f"agents.{agent_id}"
        if nameless & {path, f"{path}.adapter"}:
            continue
        try:
            build_agent(
                agent.adapter, agent.options, environment=None, path=path, folder=agent.folder
            )
        except SettingsInvalid as error:
            problems += error.problems
    return tuple(problems)


def _value_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


db = App(name="db", help="Upgrade the schema of the store, or move it to PostgreSQL.")


@db.command
def upgrade(
    *,
    plan: Annotated[bool, switch("Show the steps, change nothing.")] = False,
    config: ConfigFlag = None,
    data: DataFlag = None,
    as_json: JsonFlag = False,
) -> int:
    """Bring the store to the newest schema; the gateway must be stopped.

    A SQLite file is copied first. `up` does the same when it starts.
    """
    settings = load_settings(config, overrides=data_override(data)).settings
    kept = [settings.store, *(one.task_store for one in settings.accounts if one.task_store)]
    stores = {
        one.place: _plan_store(one) if plan else _upgrade_store(one, settings.data)
        for one in kept
        if one.kind in (StoreKind.SQLITE, StoreKind.POSTGRES)
    }
    if as_json:
        rows = [{"path": path, "steps": steps} for path, steps in stores.items()]
        print_json({"plan": plan, "stores": rows})
        return DONE
    if not stores:
        print_message(f"A store of kind {settings.store.kind.value} has no schema to upgrade.")
    for path, steps in stores.items():
        if steps:
            took = "would take" if plan else "took"
            print_data(f"{path}: {took} {len(steps)} step{'s' if len(steps) > 1 else ''}")
        else:
            print_data(f"{path} has the newest schema.")
        for step in steps:
            print_data(f"  {step}")
    return DONE


def _plan_store(store: StoreSettings) -> list[str]:
    if store.path is not None:
        from openclaw_a2a.store.sqlite import migrate

        return migrate.plan_upgrade(store.path)
    address = database_address(store)
    from openclaw_a2a.store.postgres import migrate as postgres_migrate

    return asyncio.run(postgres_migrate.plan_database_upgrade(address))


def _upgrade_store(store: StoreSettings, data: Path) -> list[str]:
    from openclaw_a2a.engine.audit_log import audit_outcome, record_command

    event, target = "db-upgraded", store.place
    try:
        if store.path is not None:
            from openclaw_a2a.store.sqlite import migrate

            store.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            steps = migrate.upgrade_file(store.path)
        else:
            address = database_address(store)
            from openclaw_a2a.store.postgres.link import upgrade_database

            steps = asyncio.run(upgrade_database(address))
    except GatewayError as error:
        record_command(data, event, target=target, **audit_outcome(error))
        raise
    if steps:
        record_command(data, event, target=target, count=len(steps))
    return steps


@db.command
def move(
    *,
    source: Annotated[
        str,
        Parameter(
            name="--from",
            help="File of a SQLite store or directory of a json-file store; sqlite or json-file: "
            "the one in the data folder.",
        ),
    ] = "sqlite",
    to: Annotated[
        str, Parameter(help="postgres://USER@HOST/NAME, or postgres: the store of the settings.")
    ] = "postgres",
    password: Annotated[str, Parameter(help="Where its password is: env:NAME or file:PATH.")] = "",
    schema: Annotated[str, Parameter(help="Schema of its tables.")] = "openclaw_a2a",
    config: ConfigFlag = None,
    data: DataFlag = None,
    as_json: JsonFlag = False,
) -> int:
    """Copy everything from a store on disk into an empty PostgreSQL store, and compare it.

    All of it or nothing. No gateway may use either of them. The source is not changed; name the new
    store in the settings afterwards.
    """
    from openclaw_a2a.engine.audit_log import audit_outcome, record_command

    settings = load_settings(config, overrides=data_override(data)).settings
    target = StoreSettings(
        kind=StoreKind.POSTGRES, url=to, password=password or None, schema=schema
    )
    if to == "postgres":
        target = settings.store
    address = database_address(target)
    kind, path = _find_source(source, settings)

    def on_table(name: str, count: int) -> None:
        if not as_json:
            print_message(f"  {name:<10} {count:>10}")

    event, moved_to = "db-moved", address.shown
    try:
        counts = _move_store(kind, path, settings, address, on_table)
    except GatewayError as error:
        record_command(settings.data, event, target=moved_to, **audit_outcome(error))
        raise
    record_command(settings.data, event, target=moved_to, count=sum(counts.values()))
    if as_json:
        print_json({"from": str(path), "to": address.shown, "rows": counts})
    else:
        print_data(f"Moved {counts['task']} tasks from {path} to {address.shown}; all compared.")
        print_message('Set store: { kind: "postgres", url: ... } in the settings, then start.')
    return DONE


def _find_source(source: str, settings: Settings) -> tuple[StoreKind, Path]:
    """A store on disk; of one that is named by its kind, the place in the settings or the usual."""
    from openclaw_a2a.settings.load import DEFAULT_FILES

    for kind, name in DEFAULT_FILES.items():
        if source == kind.value:
            given = settings.store.path if settings.store.kind is kind else None
            return kind, given or settings.data / name
    path = Path(source).expanduser().absolute()
    return StoreKind.JSON_FILE if path.is_dir() else StoreKind.SQLITE, path


def _move_store(
    kind: StoreKind, path: Path, settings: Settings, address: "Address", on_table: "ReportTable"
) -> dict[str, int]:
    from openclaw_a2a.store.postgres.json_file_source import JsonFileSource
    from openclaw_a2a.store.postgres.transfer import move_json_files, move_sqlite

    if kind is StoreKind.SQLITE:
        return asyncio.run(move_sqlite(path, address, on_table))
    logs_path = Path(settings.opt.directory)
    source = JsonFileSource(path, logs_path, lambda problem: print_message(f"  {problem}"))
    return asyncio.run(move_json_files(source, address, on_table))


def database_address(store: StoreSettings) -> "Address":
    """The address of a PostgreSQL store, with its secrets. Raises: SettingsInvalid."""
    from openclaw_a2a.settings.tokens import resolve_token
    from openclaw_a2a.store import postgres_address

    if store.kind is not StoreKind.POSTGRES or not store.url:
        raise SettingsInvalid(
            "the settings have no postgres store; name one with --to postgres://USER@HOST/NAME"
        )
    password = resolve_token(store.password or "")
    return postgres_address(resolve_token(store.url), password=password, schema=store.schema)


def version(*, as_json: JsonFlag = False) -> int:
    """Show the version and its environment."""
    import sqlite3

    facts = {
        "openclaw-a2a": version_of("openclaw-a2a"),
        "a2a": "1.0, 0.3",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": platform.platform(),
        "executable": sys.executable,
    }
    if as_json:
        print_json(facts)
    else:
        print_table(list(facts.items()))
    return DONE
