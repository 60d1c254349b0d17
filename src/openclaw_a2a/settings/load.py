"""Loads the settings: reads the sources, checks everything, and reports every problem at once."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.model.validation import (
    ProblemCollector,
    is_list,
    is_object,
    json_kind,
    read_list,
    read_section,
)
from openclaw_a2a.settings.accounts import read_accounts, read_store_kind
from openclaw_a2a.settings.agents import AgentDefaults, add_openclaw_agents, read_agents
from openclaw_a2a.settings.cross_checks import (
    check_certificates,
    check_exposure,
    check_routes,
    check_stores,
    complete_issuers,
    complete_planning,
    complete_routing,
    complete_security,
    follow_hosts,
    warn_if_no_agent_may_call,
)
from openclaw_a2a.settings.file_schema import (
    ChannelKeys,
    ChannelsKeys,
    FileKeys,
    SecurityKeys,
    StoreKeys,
    names_of,
)
from openclaw_a2a.settings.files import base_url, expand_path, is_network, normalize_base_url
from openclaw_a2a.settings.openclaw_discovery import OpenClawInstallation
from openclaw_a2a.settings.running_gateway import find_running_gateways
from openclaw_a2a.settings.sections import (
    Account,
    AuditSettings,
    LeaseSettings,
    Limits,
    LogSettings,
    OidcSettings,
    PlanningSettings,
    PolicySettings,
    PushSettings,
    ResponseRoutingSettings,
    RetentionSettings,
    SecuritySettings,
    ServerSettings,
    Settings,
    StoreKind,
    StoreSettings,
    ToolSettings,
)
from openclaw_a2a.settings.sources import (
    UNKNOWN_VARIABLE,
    process_environment,
    read_layers,
    settings_invalid,
)
from openclaw_a2a.settings.tokens import peers_need_tokens, read_peers

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_NO_OVERRIDES: Mapping[str, Json] = MappingProxyType({})
_DEFAULT_FILES = {StoreKind.SQLITE: "state.db", StoreKind.JSON_FILE: "tasks"}


class LoadedSettings(msgspec.Struct, frozen=True):
    """Settings, the source of each value, warnings, and the file that was read.

    `origins` maps the dotted path of each given setting to its source; a setting that is missing
    there has its default. `openclaw` is the OpenClaw installation whose agents were added.
    """

    settings: Settings
    origins: dict[str, str]
    warnings: tuple[Problem, ...]
    path: Path | None
    openclaw: OpenClawInstallation | None = None

    def invalid(self, problems: Iterable[Problem]) -> SettingsInvalid:
        """The error for problems of these settings, each with its source."""
        return settings_invalid(problems, origins=self.origins, path=self.path)

    def with_port(self, port: int) -> Settings:
        """The settings with the actual port, also in the URLs that are derived from it."""
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


class CheckedSettings(msgspec.Struct, frozen=True):
    """Settings as far as they can be read, and their problems."""

    loaded: LoadedSettings
    problems: tuple[Problem, ...]


def load_settings(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Json] = _NO_OVERRIDES,
    environ: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """The settings from defaults, file, environment and overrides; later sources win.

    `path` is the file; without it the working directory and then the user's config folder are
    searched. `overrides` has dotted paths (`server.port`).

    Raises: SettingsInvalid (with every problem there is).
    """
    checked = check_settings(path, overrides=overrides, environ=environ)
    if checked.problems:
        raise checked.loaded.invalid(checked.problems)
    return checked.loaded


def check_settings(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Json] = _NO_OVERRIDES,
    environ: Mapping[str, str] | None = None,
) -> CheckedSettings:
    """The same, without an error for invalid settings."""
    reader = _SettingsReader(path, environ, overrides)
    defaults = add_openclaw_agents(
        reader.layers, environ=reader.environ, collector=reader.collector
    )
    reader.layers = layers = defaults.layers
    settings = reader.read(defaults)
    # No warning for an unknown OPENCLAW_A2A_* variable that a setting refers to as `env:NAME`, such
    # as a token.
    used = {text.removeprefix("env:") for text in _strings(layers.values)}
    warnings = tuple(
        one
        for one in reader.collector.warnings
        if one.keyword != UNKNOWN_VARIABLE or one.path not in used
    )
    loaded = LoadedSettings(settings, layers.origins, warnings, layers.path, defaults.installation)
    return CheckedSettings(loaded, tuple(dict.fromkeys(reader.collector.problems)))


class GatewayLocation(msgspec.Struct, frozen=True):
    """The gateway of a data folder: its URL for this machine, its URL for peers, and the folder."""

    address: str
    public_address: str
    data: Path


def local_gateway(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Json] = _NO_OVERRIDES,
    environ: Mapping[str, str] | None = None,
) -> GatewayLocation:
    """The gateway that runs with the data folder, else the one that the settings describe.

    Reads only the server section and `data`. Raises: SettingsInvalid.
    """
    reader = _SettingsReader(path, environ, overrides)
    server, data = reader.read_server(), reader.read_data_folder()
    reader.raise_problems()
    return locate_gateway(server, data)


def locate_gateway(server: ServerSettings, data: Path) -> GatewayLocation:
    """The gateway that runs with the data folder, else the one that the settings describe."""
    running = find_running_gateways(data)
    # A gateway can be started elsewhere than the settings say (`up --port`). Of several that share
    # the folder the one of these settings is meant, if it runs, else the newest.
    for one in [one for one in running if one.port == server.port] or running[:1]:
        return GatewayLocation(one.address, one.public_address, data)
    address = base_url(server.host, server.port)
    return GatewayLocation(address, server.public_base_url or address, data)


class OutboundSettings(msgspec.Struct, frozen=True):
    """The merged `outbound` section.

    `origin` is the source of `outbound.targets` (`file NAME` or `environment NAME`), or empty.
    `variables` is the environment that targets refer to. `hidden` is a settings file that is not
    read, because `path` in the working folder comes first.
    """

    values: JsonObject
    origin: str
    path: Path | None
    data: Path
    variables: Mapping[str, str]
    hidden: Path | None = None


def read_outbound_section(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None
) -> OutboundSettings:
    """The section. Reads nothing else but `data`. Raises: SettingsInvalid."""
    reader = _SettingsReader(path, environ)
    values, data = reader.read_object("outbound"), reader.read_data_folder()
    reader.raise_problems()
    layers = reader.layers
    origin = layers.origins.get("outbound.targets", "")
    return OutboundSettings(values, origin, layers.path, data, reader.environ, layers.hidden)


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_object(value) or is_list(value):
        for member in value.values() if is_object(value) else value:
            yield from _strings(member)


class _SettingsReader:
    """Reads the merged values section by section; problems go to the collector."""

    def __init__(
        self,
        path: Path | None,
        environ: Mapping[str, str] | None,
        overrides: Mapping[str, Json] = _NO_OVERRIDES,
    ) -> None:
        self.environ = process_environment(environ)
        self.collector = ProblemCollector()
        self.layers = read_layers(
            path, overrides=overrides, environ=self.environ, collector=self.collector
        )

    def raise_problems(self) -> None:
        """Raises: SettingsInvalid, when there are problems."""
        if self.collector.problems:
            raise settings_invalid(
                self.collector.problems, origins=self.layers.origins, path=self.layers.path
            )

    def read(self, defaults: AgentDefaults) -> Settings:
        """All settings."""
        values, folder, collector = self.layers.values, self.layers.folder, self.collector
        collector.unknown_keys("", values, names_of(FileKeys))
        data, server = self.read_data_folder(), self.read_server()
        agents = read_agents(
            self.read_object("agents"), defaults, folder=folder, collector=collector
        )
        planning = self._section(PlanningSettings, "opt")
        given = planning.directory
        directory = self._path("opt.directory", given) if given else None
        self._check_keys("channels", ChannelsKeys)
        self._check_keys("channels.a2a", ChannelKeys)
        self._check_keys("channels.a2a.security", SecurityKeys)
        accounts = read_accounts(
            self.read_object("channels.a2a.accounts"),
            public_base_url=server.public_base_url,
            agents=agents,
            folder=folder,
            collector=collector,
        )
        if "server.publicBaseUrl" not in self.layers.origins:
            accounts = follow_hosts(accounts, server, collector)
        security = self.read_object("channels.a2a.security")
        settings = Settings(
            data=data,
            server=server,
            store=self._store(data),
            agents=agents,
            accounts=accounts,
            peers=read_peers(
                self.read_object("channels.a2a.security.peers"),
                environ=self.environ,
                folder=folder,
                collector=collector,
            ),
            oidc=self._oidc(accounts, agents),
            limits=self._section(Limits, "limits"),
            retention=self._section(RetentionSettings, "retention"),
            lease=self._section(LeaseSettings, "lease"),
            log=self._section(LogSettings, "log"),
            push=self._section(PushSettings, "push"),
            openclaw=self.read_object("openclaw"),
            outbound=self.read_object("outbound"),
            tools=warn_if_no_agent_may_call(self._section(ToolSettings, "tools"), collector),
            response_routing=complete_routing(
                self._section(ResponseRoutingSettings, "responseRouting"),
                environ=self.environ,
                folder=folder,
                collector=collector,
            ),
            opt=complete_planning(
                planning,
                folder=directory or data / "objectives",
                agents=agents,
                collector=collector,
            ),
            audit=self._section(AuditSettings, "audit"),
            security=complete_security(
                self._section(SecuritySettings, "security"),
                environ=self.environ,
                folder=folder,
                collector=collector,
            ),
            client_certificate_header=self._certificate_header(),
            has_token_file=peers_need_tokens(data),
            policy=read_section(
                PolicySettings,
                "channels.a2a.security.policy",
                value=security.get("policy", {}),
                collector=collector,
            ),
            pairing=self._pairing(security),
            folder=folder,
        )
        check_routes(settings.accounts, collector)
        check_stores(settings, collector)
        check_exposure(settings, collector)
        check_certificates(settings, collector)
        return settings

    def _pairing(self, security: JsonObject) -> bool:
        value: Json = security.get("pairing", False)
        if not isinstance(value, bool):
            path = "channels.a2a.security.pairing"
            self.collector.problem(path, "must be true or false", "type")
        return value is True

    def _oidc(
        self, accounts: tuple[Account, ...], agents: Collection[AgentId]
    ) -> tuple[OidcSettings, ...]:
        path, section = "channels.a2a.security.oidc", self.read_object("channels.a2a.security")
        found = read_list(
            OidcSettings, path, value=section.get("oidc", []), collector=self.collector
        )
        return complete_issuers(
            found, accounts=[one.id for one in accounts], agents=agents, collector=self.collector
        )

    def read_object(self, path: str) -> JsonObject:
        """The object at a dotted path; empty when it is absent, or (with a problem) no object."""
        value: Json = self.layers.values
        *parents, last = path.split(".")
        for key in parents:
            value = value.get(key) if is_object(value) else None
        if not is_object(value) or last not in value:
            return {}  # a parent that is no object is reported where the parent is read
        return self.collector.as_object(path, value[last])

    def _check_keys(self, path: str, kind: type[msgspec.Struct]) -> None:
        self.collector.unknown_keys(path, self.read_object(path), names_of(kind))

    def _section(self, kind: type[_Struct], key: str) -> _Struct:
        value = self.layers.values.get(key, {})
        return read_section(kind, key, value=value, collector=self.collector)

    def read_data_folder(self) -> Path:
        """The folder of everything the gateway stores."""
        value = self.layers.values.get("data", "~/.openclaw-a2a")
        return self._path("data", value) or self.layers.folder

    def _path(self, key: str, value: Json) -> Path | None:
        if not isinstance(value, str):
            self.collector.problem(key, f"must be a string, not {json_kind(value)}", "type")
            return None
        try:
            return expand_path(value.strip(), self.layers.folder)
        except ValueError as error:
            self.collector.problem(key, f"cannot be used: {error}", "path")
            return None

    def _certificate_header(self) -> str:
        path = "channels.a2a.security.clientCertificateHeader"
        value = self.read_object("channels.a2a.security").get("clientCertificateHeader", "")
        if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9-]{0,64}", value):
            return value
        self.collector.problem(path, "must be the name of a header", "format")
        return ""

    def read_server(self) -> ServerSettings:
        """The server section, with its public URL."""
        server = self._section(ServerSettings, "server")
        for index, network in enumerate(server.trusted_proxies):
            if not is_network(network):
                message = f"{network} is neither an IP address nor a network such as 10.0.0.0/8"
                self.collector.problem(f"server.trustedProxies[{index}]", message, "format")
                server = msgspec.structs.replace(server, trusted_proxies=())
        section = self.layers.values.get("server")
        address = normalize_base_url(server.public_base_url)
        if not is_object(section) or section.get("publicBaseUrl") is None:
            address = base_url(server.host, server.port)
        elif address is None and server.public_base_url.strip():
            message = "must be an http(s) address without user, query or fragment"
            self.collector.problem("server.publicBaseUrl", message, "format")
        return msgspec.structs.replace(server, public_base_url=address or "")

    def _store(self, data: Path) -> StoreSettings:
        values = self.read_object("store")
        self._check_keys("store", StoreKeys)
        kind = read_store_kind("store", values, default=StoreKind.SQLITE, collector=self.collector)
        if kind is None or kind is StoreKind.MEMORY:
            return StoreSettings(kind=StoreKind.MEMORY)
        given = self._path("store.path", values["path"]) if "path" in values else None
        return StoreSettings(kind=kind, path=given or data / _DEFAULT_FILES[kind])
