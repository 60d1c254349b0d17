"""Reads the sections that depend on others, and checks across sections."""

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.validation import join_path, read_list, suggest_name
from openclaw_a2a.settings.file_schema import PEER_NAME
from openclaw_a2a.settings.files import is_any_address, is_loopback
from openclaw_a2a.settings.sections import (
    Account,
    EncryptionSettings,
    OidcSettings,
    PlanningSettings,
    ResponseRoutingSettings,
    SecuritySettings,
    ServerSettings,
    Settings,
    ToolSettings,
    WebhookSettings,
)
from openclaw_a2a.settings.sources import SettingsReader
from openclaw_a2a.settings.tokens import absolute_reference, check_reference, decode_key

_CHANNEL_SECURITY = "channels.a2a.security"
_GATEWAY_ROUTES = ("/healthz", "/readyz", "/metrics", "/agents")


def check_routes(accounts: tuple[Account, ...], reader: SettingsReader) -> None:
    """Check that every URL path of the enabled accounts is unique."""
    owners: dict[str, str] = dict.fromkeys(_GATEWAY_ROUTES, "the gateway itself")
    enabled = [account for account in accounts if account.enabled]
    for account in enabled:
        for key, path in (
            ("agentCardPath", account.agent_card_path),
            ("agentCardPath", account.agent_card_alias),
            ("jsonRpcPath", account.json_rpc_path),
        ):
            if path is None:
                continue
            # The HTTP+JSON endpoint of an account owns everything below its path.
            below = [one.id for one in enabled if f"{path}/".startswith(f"{one.rest_path}/")]
            rest = f"account {below[0]} (its HTTP+JSON endpoint)" if below else None
            if owner := owners.get(path) or rest:
                place = f"channels.a2a.accounts.{account.id}.{key}"
                message = f"{path} is already used by {owner}; give one of them another path"
                reader.problem(place, message, "collision")
            owners.setdefault(path, f"account {account.id} ({key})")


def check_exposure(settings: Settings, reader: SettingsReader) -> None:
    """Check that a gateway without peers, where all callers are `local`, is local only."""
    if not settings.is_open:
        return
    host, public = settings.server.host, settings.server.public_base_url
    if not is_loopback(host):
        message = (
            f"{host} can be reached from other machines and no caller has to "
            "show a token; listen on 127.0.0.1 or give a peer a token in "
            "channels.a2a.security.peers.<name>.tokens"
        )
        reader.problem("server.host", message, "open-bind")
        return
    addresses = {public: "server.publicBaseUrl"}
    for account in settings.accounts:
        path = f"channels.a2a.accounts.{account.id}.publicBaseUrl"
        addresses.setdefault(account.public_base_url or "", path)
    for address, path in addresses.items():
        if not is_loopback(urlsplit(address).hostname or "localhost"):
            message = (
                f"is {address}, which other machines reach, so callers without a token are "
                "refused; configure channels.a2a.security.peers"
            )
            reader.warning(path, message, "open-address")


def check_certificates(settings: Settings, reader: SettingsReader) -> None:
    """Check the settings that certificates of peers depend on."""
    for peer in settings.peers.values():
        if not peer.certificates:
            continue
        place = f"channels.a2a.security.peers.{peer.name}.certificates"
        for key, value in (
            ("server.trustedProxies", settings.server.trusted_proxies),
            ("channels.a2a.security.clientCertificateHeader", settings.client_certificate_header),
        ):
            if not value:
                message = f"are not accepted from anybody before {key} is set"
                reader.warning(place, message, "certificate")


def follow_hosts(
    accounts: tuple[Account, ...], server: ServerSettings, reader: SettingsReader
) -> tuple[Account, ...]:
    """The accounts of a gateway that listens on all addresses and has no public URL.

    Those without an address of their own follow the Host header; a warning says so.
    """
    if not is_any_address(server.host):
        return accounts
    followed = tuple(
        msgspec.structs.replace(one, follows_host=True)
        if one.public_base_url == server.public_base_url
        else one
        for one in accounts
    )
    if any(one.follows_host and one.enabled for one in followed):
        message = (
            f"is not set, and {server.host} is every address of this machine: agent cards name the "
            "address by which they are asked for (the Host header), over http; set it to the "
            "address by which peers reach this gateway"
        )
        reader.warning("server.publicBaseUrl", message, "no-public-address")
    return followed


def check_stores(settings: Settings, reader: SettingsReader) -> None:
    """Check that every store of the gateway and of the accounts has its own path."""
    owners: dict[Path, str] = {}
    if settings.store.path is not None:
        owners[settings.store.path] = "the gateway (store); leave taskStore out to share it"
    for account in settings.accounts:
        path = account.task_store.path if account.task_store else None
        if path is None:
            continue
        if path in owners:
            place = f"channels.a2a.accounts.{account.id}.taskStore.path"
            reader.problem(place, f"{path} is already used by {owners[path]}", "collision")
        owners.setdefault(path, f"account {account.id}")
    folder = Path(settings.opt.directory)
    if settings.opt.enabled and folder in owners:
        reader.problem(
            "opt.directory", f"{folder} is already used by {owners[folder]}", "collision"
        )


def check_replicas(settings: Settings, reader: SettingsReader) -> None:
    """Check the settings that several gateways on one store depend on."""
    if not settings.store.replicas:
        return
    if not settings.retention.message_seconds:
        message = (
            "must be more than 0 with store.replicas: a message that two replicas receive is "
            "recognised by its stored id"
        )
        reader.problem("retention.messageSeconds", message, "replicas")
    placed = [name for name, agent in settings.agents.items() if agent.replicas]
    if placed and not settings.store.replica_name:
        message = f"is missing; agents.{placed[0]}.replicas lists gateways by this name"
        reader.problem("store.replicaName", message, "required")


def read_issuers(
    reader: SettingsReader, accounts: Iterable[Account], agents: Collection[str]
) -> tuple[OidcSettings, ...]:
    """The issuers of tokens, with their names."""
    section, path = reader.read_object(_CHANNEL_SECURITY), join_path(_CHANNEL_SECURITY, "oidc")
    given = read_list(OidcSettings, path, value=section.get("oidc", []), collector=reader)
    account_ids = [one.id for one in accounts]
    found: list[OidcSettings] = []
    for path, one in given:
        for key, url in (("issuer", one.issuer), ("jwksUrl", one.jwks_url)):
            if url and not _is_safe_address(url):
                message = "must be an https address without user, query and fragment"
                reader.problem(join_path(path, key), f"{message} (http: this machine)", "format")
        name = one.name or (urlsplit(one.issuer).hostname or "").lower()
        if not re.fullmatch(PEER_NAME, name):
            message = "is 1 to 64 of a-z 0-9 _ . - and starts with a letter or digit"
            reader.problem(join_path(path, "name"), message, "name")
        for key, names, known in (
            ("accounts", one.accounts, account_ids),
            ("agents", one.agents, agents),
        ):
            for unknown in [each for each in names or () if each not in known]:
                message = f"there is no {unknown}; {suggest_name(unknown, list(known))}"
                reader.problem(join_path(path, key), message, "unknown-name")
        if any(name == other.name for other in found):
            message = f"{name} is the name of another issuer; give each a name of its own"
            reader.problem(join_path(path, "name"), message, "collision")
        if any(one.issuer == other.issuer for other in found):
            message = "is there twice; write it once, with all audiences"
            reader.problem(join_path(path, "issuer"), message, "collision")
        found.append(msgspec.structs.replace(one, name=name))
    return tuple(found)


def _is_safe_address(url: str) -> bool:
    # Keys fetched over plain http can be replaced in transit, except on this machine.
    parts = urlsplit(url) if _is_address(url) else None
    is_safe = parts is not None and (parts.scheme == "https" or is_loopback(parts.hostname or ""))
    return is_safe and "?" not in url


def read_security(reader: SettingsReader) -> SecuritySettings:
    """The section with absolute references to its keys; what is wrong is a problem."""
    section = reader.read_section(SecuritySettings, "security")
    references = [absolute_reference(one, reader.folder) for one in section.encryption.keys]
    for number, reference in enumerate(references):
        place = f"security.encryption.keys[{number}]"
        key = check_reference(place, reference, reader, what="key")
        try:
            if key is not None:
                decode_key(key)
        except ValueError as error:
            reader.problem(place, f"{reference} {error}", "secret")
    return SecuritySettings(EncryptionSettings(tuple(references)))


def read_routing(reader: SettingsReader) -> ResponseRoutingSettings:
    """The section with absolute token references; what is wrong is a problem."""
    section = reader.read_section(ResponseRoutingSettings, "responseRouting")
    if section.default_timeout_ms > section.max_timeout_ms:
        message = f"is more than maxTimeoutMs ({section.max_timeout_ms}); lower it, or raise that"
        reader.problem("responseRouting.defaultTimeoutMs", message, "range")
    webhooks: dict[str, WebhookSettings] = {}
    for name, webhook in sorted(section.webhooks.items()):
        place = f"responseRouting.webhooks.{name}"
        if not re.fullmatch(PEER_NAME, name):
            message = "is not a caller's name; see: openclaw-a2a token list"
            reader.problem(place, message, "name")
        if not _is_address(webhook.url):
            message = "must be an http(s) address without user and fragment"
            reader.problem(join_path(place, "url"), message, "format")
        reference = absolute_reference(webhook.token, reader.folder)
        webhooks[name] = msgspec.structs.replace(webhook, token=reference)
        if reference:  # checked now; otherwise it would fail only when an outcome is posted
            check_reference(join_path(place, "token"), reference, reader)
    return msgspec.structs.replace(section, webhooks=webhooks)


def read_tools(reader: SettingsReader) -> ToolSettings:
    """The section; a warning when calls are enabled and no agent is allowed to take part."""
    section = reader.read_section(ToolSettings, "tools")
    if section.agent_to_agent.enabled and not section.agent_to_agent.allow:
        message = (
            "is empty, so every call is forbidden; write the agents that may call and be called, "
            'such as ["main", "helper"], or ["*"] for all'
        )
        reader.warning("tools.agentToAgent.allow", message, "nobody")
    return section


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_plain = not (parts.fragment or "@" in parts.netloc or re.search(r"[\s\x00-\x1f]", text))
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and is_plain and has_port


def read_planning(
    reader: SettingsReader, *, data: Path, agents: Collection[AgentId]
) -> PlanningSettings:
    """The section with its folder; a setting without effect is a warning."""
    section = reader.read_section(PlanningSettings, "opt")
    planner, given = section.planner.strip(), section.directory
    if planner and planner not in agents:
        message = f"there is no agent {planner}; {suggest_name(planner, list(agents))}"
        reader.problem("opt.planner", message, "unknown-agent")
    if section.tools and not section.enabled:
        reader.warning("opt.tools", "has no effect; set opt.enabled to true", "unavailable")
    folder = reader.read_path("opt.directory", given) if given else None
    directory = str(folder or data / "objectives")
    return msgspec.structs.replace(section, directory=directory, planner=planner)
