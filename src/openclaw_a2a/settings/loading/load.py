"""Loads the settings: reads the sources, checks everything, and reports every problem at once."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.model.validation import ProblemCollector, is_list, is_object, json_kind
from openclaw_a2a.settings.loading.accounts import AccountDefaults, read_accounts, read_store_kind
from openclaw_a2a.settings.loading.agents import read_agents
from openclaw_a2a.settings.loading.cross_checks import (
    check_routes,
    check_stores,
    complete_planning,
    complete_routing,
    warn_if_nobody_may_call,
)
from openclaw_a2a.settings.loading.environment import UNKNOWN_VARIABLE
from openclaw_a2a.settings.loading.peers import TokenReader, read_peers
from openclaw_a2a.settings.loading.readers import read_section
from openclaw_a2a.settings.loading.sources import Layers, invalid, read_layers
from openclaw_a2a.settings.openclaw.agent_defaults import AgentDefaults, add_openclaw_agents
from openclaw_a2a.settings.openclaw.discovery import OpenClawInstallation
from openclaw_a2a.settings.paths import base_url, expand_path, is_loopback, normalize_url
from openclaw_a2a.settings.schema.file_schema import (
    ChannelKeys,
    ChannelsKeys,
    FileKeys,
    SecurityKeys,
    StoreKeys,
    names_of,
)
from openclaw_a2a.settings.schema.sections import (
    Account,
    AgentSettings,
    LeaseSettings,
    Limits,
    LogSettings,
    PlanningSettings,
    PushSettings,
    ResponseRoutingSettings,
    RetentionSettings,
    ServerSettings,
    Settings,
    StoreKind,
    StoreSettings,
    ToolSettings,
)

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_NO_OVERRIDES: Mapping[str, Json] = MappingProxyType({})
_FILE_OF = {StoreKind.SQLITE: "state.db", StoreKind.JSON_FILE: "tasks"}


class LoadedSettings(msgspec.Struct, frozen=True):
    """Settings with where each came from, what was put right on the way, and the file read.

    `origins` has the settings that were given, by dotted path; all others are defaults. `openclaw`
    is the OpenClaw whose agents are among the settings'.
    """

    settings: Settings
    origins: dict[str, str]
    warnings: tuple[Problem, ...]
    path: Path | None
    openclaw: OpenClawInstallation | None = None

    def invalid(self, problems: Iterable[Problem]) -> SettingsInvalid:
        """The error for problems of these settings; each says which source it comes from."""
        return invalid(problems, origins=self.origins, path=self.path)

    def with_port(self, port: int) -> Settings:
        """The settings once the port is known; addresses made of the port follow it."""
        old = self.settings
        server = msgspec.structs.replace(old.server, port=port)
        if "server.publicBaseUrl" in self.origins:
            return msgspec.structs.replace(old, server=server)
        address = base_url(server.host, port)
        server = msgspec.structs.replace(server, public_base_url=address)
        accounts = tuple(
            msgspec.structs.replace(one, public_base_url=address)
            if one.public_base_url == old.server.public_base_url
            else one
            for one in old.accounts
        )
        return msgspec.structs.replace(old, server=server, accounts=accounts)


def load_settings(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Json] = _NO_OVERRIDES,
    environ: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """The settings from defaults, file, environment and overrides, each over the one before.

    `path` is the file; without it the working directory and then the user's config folder are
    looked at. `overrides` has dotted paths (`server.port`).

    Raises:
        SettingsInvalid: with every problem there is.
    """
    examined = check_settings(path, overrides=overrides, environ=environ)
    if examined.problems:
        raise examined.loaded.invalid(examined.problems)
    return examined.loaded


class CheckedSettings(msgspec.Struct, frozen=True):
    """Settings as far as they can be read, and what is wrong with them."""

    loaded: LoadedSettings
    problems: tuple[Problem, ...]


def check_settings(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Json] = _NO_OVERRIDES,
    environ: Mapping[str, str] | None = None,
) -> CheckedSettings:
    """As `load_settings`, for who wants to look further although there are problems."""
    report = ProblemCollector()
    environment = os.environ if environ is None else environ
    layers = read_layers(path, overrides=overrides, environ=environment, report=report)
    offer = add_openclaw_agents(layers, environ=environment, report=report)
    layers = offer.layers
    settings = _Reader(layers, environ=environment, report=report).read(offer)
    warnings = _warnings(report, layers.values)
    loaded = LoadedSettings(settings, layers.origins, warnings, layers.path, offer.found)
    return CheckedSettings(loaded, tuple(report.problems))


def server_address(path: Path | None = None, *, environ: Mapping[str, str] | None = None) -> str:
    """Where the gateway of the settings is reached; only what that needs is read and checked.

    Raises:
        SettingsInvalid: the file or its server section has problems.
    """
    server = _read_some(path, _Reader.read_server, environ=environ)
    return server.public_base_url or base_url(server.host, server.port)


class LocalGateway(msgspec.Struct, frozen=True):
    """The gateway of the settings, for who is on its machine: where it listens, and its folder."""

    address: str
    data: Path


def local_gateway(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Json] = _NO_OVERRIDES,
    environ: Mapping[str, str] | None = None,
) -> LocalGateway:
    """Where the gateway of the settings listens; only what that needs is read and checked.

    Raises:
        SettingsInvalid: the file, its server section or its data folder has problems.
    """
    return _read_some(path, _Reader.read_local, overrides=overrides, environ=environ)


def _read_some(
    path: Path | None,
    read: "Callable[[_Reader], _Struct]",
    *,
    overrides: Mapping[str, Json] = _NO_OVERRIDES,
    environ: Mapping[str, str] | None = None,
) -> _Struct:
    report = ProblemCollector()
    environment = os.environ if environ is None else environ
    layers = read_layers(path, overrides=overrides, environ=environment, report=report)
    found = read(_Reader(layers, environ=environment, report=report))
    if report.problems:
        raise invalid(report.problems, origins=layers.origins, path=layers.path)
    return found


def _warnings(report: ProblemCollector, values: JsonObject) -> tuple[Problem, ...]:
    """All but those about variables that the settings use as references."""
    used = {name.removeprefix("env:") for name in _strings(values)}
    return tuple(
        one for one in report.warnings if one.keyword != UNKNOWN_VARIABLE or one.path not in used
    )


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_object(value):
        for member in value.values():
            yield from _strings(member)
    elif is_list(value):
        for item in value:
            yield from _strings(item)


class _Reader:
    """Reads the laid-over values section by section."""

    def __init__(
        self, layers: Layers, *, environ: Mapping[str, str], report: ProblemCollector
    ) -> None:
        self._values = layers.values
        self._folder = layers.folder
        self._environ = environ
        self._report = report

    def read(self, offer: AgentDefaults) -> Settings:
        """All of it; what is wrong is in the report."""
        self._report.unknown_keys("", self._values, names_of(FileKeys))
        data = self._data_folder()
        server = self.read_server()
        written = self._object(self._values, "agents")
        agents = read_agents(written, offer, folder=self._folder, report=self._report)
        channel = self._channel()
        security = self._object(channel, "channels.a2a.security")
        self._report.unknown_keys("channels.a2a.security", security, names_of(SecurityKeys))
        tokens = TokenReader(self._environ, folder=self._folder, report=self._report)
        settings = Settings(
            data=data,
            server=server,
            store=self._store(data),
            agents=agents,
            accounts=self._accounts(channel, server, agents),
            peers=read_peers(
                "channels.a2a.security.peers",
                self._object(security, "channels.a2a.security.peers"),
                tokens=tokens,
                report=self._report,
            ),
            limits=self._section(Limits, "limits"),
            retention=self._section(RetentionSettings, "retention"),
            lease=self._section(LeaseSettings, "lease"),
            log=self._section(LogSettings, "log"),
            push=self._section(PushSettings, "push"),
            openclaw=self._object(self._values, "openclaw"),
            outbound=self._object(self._values, "outbound"),
            tools=warn_if_nobody_may_call(self._section(ToolSettings, "tools"), self._report),
            response_routing=self._routing(),
            opt=self._planning(data, agents),
        )
        self._check_together(settings)
        return settings

    def _section(self, kind: type[_Struct], key: str) -> _Struct:
        return read_section(kind, key, value=self._values.get(key, {}), report=self._report)

    def _object(self, values: JsonObject, path: str) -> JsonObject:
        return self._report.as_object(path, values.get(path.rpartition(".")[2], {}))

    def _routing(self) -> ResponseRoutingSettings:
        section = self._section(ResponseRoutingSettings, "responseRouting")
        return complete_routing(
            section, environ=self._environ, folder=self._folder, report=self._report
        )

    def _planning(self, data: Path, agents: Collection[AgentId]) -> PlanningSettings:
        section = self._section(PlanningSettings, "opt")
        given = self._path("opt.directory", section.directory) if section.directory else None
        return complete_planning(
            section, folder=given or data / "objectives", agents=agents, report=self._report
        )

    def read_local(self) -> LocalGateway:
        """Where the gateway listens, and where it keeps its things."""
        server = self.read_server()
        return LocalGateway(base_url(server.host, server.port), self._data_folder())

    def _data_folder(self) -> Path:
        return self._path("data", self._values.get("data", "~/.openclaw-a2a")) or self._folder

    def _path(self, key: str, value: Json) -> Path | None:
        if not isinstance(value, str):
            self._report.problem(key, f"must be a string, not {json_kind(value)}", "type")
            return None
        try:
            return expand_path(value.strip(), self._folder)
        except ValueError as error:
            self._report.problem(key, f"cannot be used: {error}", "path")
            return None

    def read_server(self) -> ServerSettings:
        """Where the gateway listens."""
        server = self._section(ServerSettings, "server")
        given = self._object(self._values, "server").get("publicBaseUrl")
        address = normalize_url(server.public_base_url)
        if given is None:
            address = base_url(server.host, server.port)
        elif address is None and server.public_base_url.strip():
            message = "must be an http(s) address without user, query or fragment"
            self._report.problem("server.publicBaseUrl", message, "format")
        return msgspec.structs.replace(server, public_base_url=address or "")

    def _store(self, data: Path) -> StoreSettings:
        values = self._report.as_object("store", self._values.get("store", {}))
        self._report.unknown_keys("store", values, names_of(StoreKeys))
        kind = read_store_kind("store", values, default=StoreKind.SQLITE, report=self._report)
        if kind is None or kind is StoreKind.MEMORY:
            return StoreSettings(kind=StoreKind.MEMORY)
        given = self._path("store.path", values["path"]) if "path" in values else None
        return StoreSettings(kind=kind, path=given or data / _FILE_OF[kind])

    def _channel(self) -> JsonObject:
        channels = self._report.as_object("channels", self._values.get("channels", {}))
        self._report.unknown_keys("channels", channels, names_of(ChannelsKeys))
        channel = self._object(channels, "channels.a2a")
        self._report.unknown_keys("channels.a2a", channel, names_of(ChannelKeys))
        return channel

    def _accounts(
        self, channel: JsonObject, server: ServerSettings, agents: dict[AgentId, AgentSettings]
    ) -> tuple[Account, ...]:
        values = self._object(channel, "channels.a2a.accounts")
        around = AccountDefaults(server.public_base_url, agents, self._folder)
        return read_accounts("channels.a2a.accounts", values, around=around, report=self._report)

    def _check_together(self, settings: Settings) -> None:
        check_routes(settings.accounts, self._report)
        check_stores(settings, self._report)
        if settings.is_open and not is_loopback(settings.server.host):
            message = (
                f"{settings.server.host} can be reached from other machines and no caller has to "
                "show a token; listen on 127.0.0.1 or give a peer a token in "
                "channels.a2a.security.peers.<name>.tokens"
            )
            self._report.problem("server.host", message, "open-bind")
        elif settings.is_open:
            self._warn_of_public_addresses(settings)

    def _warn_of_public_addresses(self, settings: Settings) -> None:
        addresses: dict[str, str] = {}
        if settings.server.public_base_url:
            addresses[settings.server.public_base_url] = "server.publicBaseUrl"
        for account in settings.accounts:
            path = f"channels.a2a.accounts.{account.id}.publicBaseUrl"
            addresses.setdefault(account.public_base_url or "", path)
        for address, path in addresses.items():
            if not is_loopback(urlsplit(address).hostname or "localhost"):
                message = (
                    f"is {address}, and anybody who reaches that address is `local`; "
                    "configure channels.a2a.security.peers"
                )
                self._report.warning(path, message, "open-address")


class OutboundSection(msgspec.Struct, frozen=True):
    """What the sources say of `outbound` together, and where.

    `origin` names the source of `outbound.targets` (`file NAME` or `environment NAME`), and is
    empty when none has any. `variables` is the environment that targets refer to.
    """

    values: JsonObject
    origin: str
    path: Path | None
    data: Path
    variables: Mapping[str, str]


def read_outbound_section(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None
) -> OutboundSection:
    """The section; only what it needs is read and checked.

    Raises:
        SettingsInvalid: the file cannot be read, or the section is no object.
    """
    report = ProblemCollector()
    environment = os.environ if environ is None else environ
    layers = read_layers(path, overrides={}, environ=environment, report=report)
    values = report.as_object("outbound", layers.values.get("outbound", {}))
    if report.problems:
        raise invalid(report.problems, origins=layers.origins, path=layers.path)
    origin = layers.origins.get("outbound.targets", "")
    folder = local_gateway(path, environ=environment).data
    return OutboundSection(values, origin, layers.path, folder, environment)
