"""Loads the settings: reads the sources, checks everything, and reports every problem at once."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qs, urlsplit

import msgspec

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_list, is_object, object_at
from openclaw_a2a.settings.accounts import read_accounts, read_enum
from openclaw_a2a.settings.agents import AddedAgents, add_openclaw_agents, read_agents
from openclaw_a2a.settings.cross_checks import (
    check_certificates,
    check_exposure,
    check_replicas,
    check_routes,
    check_stores,
    follow_hosts,
    read_issuers,
    read_planning,
    read_routing,
    read_security,
    read_tools,
)
from openclaw_a2a.settings.file_schema import (
    ChannelKeys,
    ChannelsKeys,
    FileKeys,
    SecurityKeys,
    StoreKeys,
    names_of,
)
from openclaw_a2a.settings.files import base_url, is_network, normalize_base_url
from openclaw_a2a.settings.openclaw_config import OpenClawInstallation
from openclaw_a2a.settings.running_gateway import find_running_gateways
from openclaw_a2a.settings.sections import (
    AuditSettings,
    DashboardSettings,
    LeaseSettings,
    Limits,
    LogSettings,
    PolicySettings,
    PushSettings,
    RetentionSettings,
    ServerSettings,
    Settings,
    StoreKind,
    StoreSettings,
)
from openclaw_a2a.settings.sources import UNKNOWN_VARIABLE, SettingsReader, settings_invalid
from openclaw_a2a.settings.tokens import (
    absolute_reference,
    check_reference,
    peers_need_tokens,
    read_peers,
)

_NO_OVERRIDES: Mapping[str, Json] = MappingProxyType({})
_SECURITY = "channels.a2a.security"
_SECRETS = frozenset({"password", "sslpassword"})
DEFAULT_FILES = {StoreKind.SQLITE: "state.db", StoreKind.JSON_FILE: "tasks"}


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
    checked = _check(SettingsReader(path, environ, overrides))
    if checked.problems:
        raise checked.loaded.invalid(checked.problems)
    return checked.loaded


def check_settings(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Json] = _NO_OVERRIDES,
    environ: Mapping[str, str] | None = None,
) -> CheckedSettings:
    """The same, without an error for invalid settings. The caller shows the warnings."""
    return _check(SettingsReader(path, environ, overrides, reports_hidden_file=False))


def _check(reader: SettingsReader) -> CheckedSettings:
    openclaw = add_openclaw_agents(reader)
    settings = _read_settings(reader, openclaw)
    # No warning for an unknown OPENCLAW_A2A_* variable that a setting refers to as `env:NAME`, such
    # as a token.
    used = {text.removeprefix("env:") for text in _strings(reader.values)}
    warnings = tuple(
        one for one in reader.warnings if one.keyword != UNKNOWN_VARIABLE or one.path not in used
    )
    loaded = LoadedSettings(settings, reader.origins, warnings, reader.path, openclaw.installation)
    return CheckedSettings(loaded, tuple(dict.fromkeys(reader.problems)))


class GatewayLocation(msgspec.Struct, frozen=True):
    """The gateway of a data folder: its URL for this machine, its URL for peers, and the folder."""

    address: str
    public_address: str
    data: Path


def local_gateway(
    path: Path | None = None, *, overrides: Mapping[str, Json] = _NO_OVERRIDES
) -> GatewayLocation:
    """The gateway that runs with the data folder, else the one that the settings describe.

    Reads only the server section and `data`. Raises: SettingsInvalid.
    """
    reader = SettingsReader(path, None, overrides)
    server, data = _read_server(reader), _read_data_folder(reader)
    if reader.problems:
        raise reader.invalid()
    return locate_gateway(server, data)


def locate_gateway(server: ServerSettings, data: Path) -> GatewayLocation:
    """The gateway that runs with the data folder, else the one that the settings describe."""
    running = find_running_gateways(data)
    # A gateway can be started on another port than the settings say (`up --port`). If several
    # share the folder, the one of these settings is used if it runs, otherwise the newest.
    for one in [one for one in running if one.port == server.port] or running[:1]:
        return GatewayLocation(one.address, one.public_address, data)
    address = base_url(server.host, server.port)
    return GatewayLocation(address, server.public_base_url or address, data)


class OutboundSettings(msgspec.Struct, frozen=True):
    """The merged `outbound` section.

    `origin` is the source of `outbound.targets` (`file NAME` or `environment NAME`), or empty.
    `variables` is the environment that targets refer to.
    """

    values: JsonObject
    origin: str
    path: Path | None
    data: Path
    variables: Mapping[str, str]


def read_outbound_section(path: Path | None = None) -> OutboundSettings:
    """The section. Reads nothing else but `data`. Raises: SettingsInvalid."""
    reader = SettingsReader(path, None, _NO_OVERRIDES)
    values, data = reader.read_object("outbound"), _read_data_folder(reader)
    if reader.problems:
        raise reader.invalid()
    origin = reader.origins.get("outbound.targets", "")
    return OutboundSettings(values, origin, reader.path, data, reader.environ)


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_object(value) or is_list(value):
        for member in value.values() if is_object(value) else value:
            yield from _strings(member)


def _read_settings(reader: SettingsReader, openclaw: AddedAgents) -> Settings:
    reader.unknown_keys("", reader.values, names_of(FileKeys))
    data, server = _read_data_folder(reader), _read_server(reader)
    agents = read_agents(reader, openclaw)
    planning = read_planning(reader, data=data, agents=agents)
    reader.check_keys("channels", ChannelsKeys)
    reader.check_keys("channels.a2a", ChannelKeys)
    reader.check_keys(_SECURITY, SecurityKeys)
    accounts = read_accounts(reader, agents, public_base_url=server.public_base_url)
    if "server.publicBaseUrl" not in reader.origins:
        accounts = follow_hosts(accounts, server, reader)
    settings = Settings(
        data=data,
        server=server,
        store=_read_store(reader, data),
        agents=agents,
        accounts=accounts,
        peers=read_peers(reader),
        oidc=read_issuers(reader, accounts, agents),
        limits=reader.read_section(Limits, "limits"),
        retention=reader.read_section(RetentionSettings, "retention"),
        lease=reader.read_section(LeaseSettings, "lease"),
        log=reader.read_section(LogSettings, "log"),
        push=reader.read_section(PushSettings, "push"),
        openclaw=reader.read_object("openclaw"),
        outbound=reader.read_object("outbound"),
        tools=read_tools(reader),
        response_routing=read_routing(reader),
        opt=planning,
        audit=reader.read_section(AuditSettings, "audit"),
        dashboard=reader.read_section(DashboardSettings, "dashboard"),
        security=read_security(reader),
        client_certificate_header=_read_certificate_header(reader),
        has_token_file=peers_need_tokens(data),
        policy=reader.read_section(PolicySettings, f"{_SECURITY}.policy"),
        pairing=_read_pairing(reader),
        folder=reader.folder,
    )
    check_routes(settings.accounts, reader)
    check_stores(settings, reader)
    check_replicas(settings, reader)
    check_exposure(settings, reader)
    check_certificates(settings, reader)
    return settings


def _read_pairing(reader: SettingsReader) -> bool:
    value: Json = reader.read_object(_SECURITY).get("pairing", False)
    if not isinstance(value, bool):
        reader.problem(f"{_SECURITY}.pairing", "must be true or false", "type")
    return value is True


def _read_certificate_header(reader: SettingsReader) -> str:
    value = reader.read_object(_SECURITY).get("clientCertificateHeader", "")
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9-]{0,64}", value):
        return value
    path = f"{_SECURITY}.clientCertificateHeader"
    reader.problem(path, "must be the name of a header", "format")
    return ""


def _read_data_folder(reader: SettingsReader) -> Path:
    """The folder of everything the gateway stores."""
    return reader.read_path("data", reader.values.get("data", "~/.openclaw-a2a")) or reader.folder


def _read_server(reader: SettingsReader) -> ServerSettings:
    """The server section, with its public URL."""
    server = reader.read_section(ServerSettings, "server")
    for index, network in enumerate(server.trusted_proxies):
        if not is_network(network):
            message = f"{network} is neither an IP address nor a network such as 10.0.0.0/8"
            reader.problem(f"server.trustedProxies[{index}]", message, "format")
            server = msgspec.structs.replace(server, trusted_proxies=())
    address = normalize_base_url(server.public_base_url)
    if object_at(reader.values, "server").get("publicBaseUrl") is None:
        address = base_url(server.host, server.port)
    elif address is None and server.public_base_url.strip():
        message = "must be an http(s) address without user, query or fragment"
        reader.problem("server.publicBaseUrl", message, "format")
    return msgspec.structs.replace(server, public_base_url=address or "")


def _read_store(reader: SettingsReader, data: Path) -> StoreSettings:
    values = reader.read_object("store")
    kind = read_enum(StoreKind, "store.kind", values.get("kind", "sqlite"), reader)
    if kind is StoreKind.POSTGRES:
        return _read_database(reader)
    reader.check_keys("store", StoreKeys)
    if kind is None or kind is StoreKind.MEMORY:
        return StoreSettings(kind=StoreKind.MEMORY)
    given = reader.read_path("store.path", values["path"]) if "path" in values else None
    return StoreSettings(kind=kind, path=given or data / DEFAULT_FILES[kind])


def _has_password(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "@" in url
    return parts.password is not None or not parse_qs(parts.query).keys().isdisjoint(_SECRETS)


def _read_database(reader: SettingsReader) -> StoreSettings:
    """A store in PostgreSQL; its secrets are references, and are there."""
    keys = reader.read_section(StoreKeys, "store")
    url, password = keys.url.strip(), keys.password.strip()
    if not url:
        message = (
            "is missing; a store of kind postgres needs one, such as postgres://USER@HOST/NAME"
        )
        reader.problem("store.url", message, "required")
    elif re.match(r"(env|file):.", url):
        check_reference("store.url", url, reader, what="address")
    elif not re.match(r"postgres(ql)?://", url):
        message = "must be an address such as postgres://USER@HOST/NAME, or env:NAME or file:PATH"
        reader.problem("store.url", message, "format")
    elif _has_password(url):
        message = (
            "contains the password; take it out, and name where it is in store.password "
            "(env:NAME or file:PATH)"
        )
        reader.problem("store.url", message, "secret")
    if password:
        check_reference("store.password", password, reader, what="password")
    return StoreSettings(
        kind=StoreKind.POSTGRES,
        url=absolute_reference(url, reader.folder),
        password=absolute_reference(password, reader.folder) or None,
        schema=keys.schema,
        connections=keys.connections,
        replicas=keys.replicas,
        replica_name=keys.replica_name,
    )
