"""Which remote agent is meant: by alias, by address, or by default."""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.url_policy import url_rejection_reason
from openclaw_a2a.remote.config import Auth, OutboundConfig, TargetConfig, Transport
from openclaw_a2a.remote.credentials import substitute
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure

_USER = re.compile(r"//[^/?#]*@")
"""What stands before the host of an address and may be a secret."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PLAIN = "%/?:@!$&'()*+,;=~"
"""Signs that stand for themselves in an address."""


class TargetIdentity(msgspec.Struct, frozen=True):
    """What makes two targets the same: address, card path and transports in order."""

    base_url: str
    card_path: str
    preferred_transports: tuple[Transport, ...]


class Target(msgspec.Struct, frozen=True):
    """A remote agent to talk to."""

    identity: TargetIdentity
    alias: str | None = None
    description: str | None = None
    auth: Auth | None = None
    allowed_hosts: tuple[str, ...] = ()
    is_callers: bool = False
    """True when only a caller named its address: then it is checked where that leads."""

    @property
    def card_url(self) -> str:
        """Where its card is: under its address, whatever the card path looks like."""
        place = urlsplit(self.identity.base_url)
        path = f"{place.path.rstrip('/')}/{self.identity.card_path.lstrip('/')}"
        return urlunsplit((place.scheme, place.netloc, path, place.query, ""))

    @property
    def base_url(self) -> str:
        """Its address."""
        return self.identity.base_url

    def as_object(self) -> JsonObject:
        """As error details show it; never with its secrets."""
        identity = self.identity
        shown: JsonObject = {
            "baseUrl": identity.base_url,
            "cardPath": identity.card_path,
            "preferredTransports": [one.value for one in identity.preferred_transports],
        }
        return {**shown, "alias": self.alias} if self.alias else shown


class TargetDirectory:
    """The configured targets, and the rules for all others."""

    def __init__(self, config: OutboundConfig, environment: Mapping[str, str]) -> None:
        self._config = config
        self._environment = environment

    @property
    def configured(self) -> tuple[Target, ...]:
        """All of them, with addresses as the environment completes them now."""
        return tuple(self._of_config(one, self._shown(one)) for one in self._config.targets)

    @property
    def default(self) -> Target | None:
        """The one that is meant when a request names none. Raises: RemoteFailure."""
        default = self._config.default_target
        return None if default is None else self.named(default.alias)

    def normalize(self, url: str) -> str:
        """The address as it is compared everywhere. Raises: ValueError."""
        if _USER.search(url):
            raise ValueError("an address must not hold a user name or a password")
        return normalize_url(url) if self._config.policy.normalize_base_url else url.strip()

    def named(self, alias: str) -> Target:
        """The target with this alias. Raises: RemoteFailure."""
        for config in self._config.targets:
            if config.alias == alias:
                return self._of_config(config, self._address(config))
        raise _unresolved(
            "unknown_alias",
            f'there is no target "{alias}"; list_targets shows those there are',
            alias=alias,
            availableAliases=list(self._config.aliases),
        )

    def with_url(self, url: str) -> list[Target]:
        """The configured targets at this address."""
        try:
            wanted = self.normalize(url)
        except ValueError:
            return []
        return [target for target in self.configured if target.base_url == wanted]

    def at_url(self, url: str) -> Target:
        """The target at this address, configured or (when allowed) any. Raises: RemoteFailure."""
        found = self.with_url(url)
        if len(found) == 1:
            return found[0]
        normalized = self._normalized(url)
        if found:
            raise _unresolved(
                "ambiguous_normalized_url_matches",
                f"several targets are at {normalized}; name one by its alias",
                normalizedBaseUrl=normalized,
                aliases=[target.alias for target in found],
                hint="use target_alias",
            )
        if not self._config.policy.allow_target_url_override:
            raise self.not_allowed(url, normalized)
        defaults = self._config.defaults
        return self.named_by_caller(
            Target(TargetIdentity(normalized, defaults.card_path, defaults.preferred_transports))
        )

    def named_by_caller(self, target: Target) -> Target:
        """A target whose address is no configured one's. Raises: RemoteFailure (not public)."""
        reason = url_rejection_reason(target.base_url)
        if reason is not None and not self._config.policy.allow_private_targets:
            host = urlsplit(target.base_url).hostname or ""
            raise not_public(host, f"{target.base_url} {reason}, which is not allowed")
        return msgspec.structs.replace(target, is_callers=True)

    def not_allowed(self, url: str, normalized: str) -> RemoteFailure:
        """The failure for an address that is no configured target's."""
        shown = _without_user(normalized)
        return _unresolved(
            "raw_url_disallowed_by_policy",
            f"{shown} is no configured target, and the policy allows no other",
            inputBaseUrl=_without_user(url),
            normalizedBaseUrl=shown,
            allowTargetUrlOverride=False,
            configuredAliases=list(self._config.aliases),
            hint="use target_alias, or set outbound.policy.allowTargetUrlOverride",
        )

    def _normalized(self, url: str) -> str:
        try:
            return self.normalize(url)
        except ValueError:
            shown = _without_user(url)
            raise _unresolved(
                "unknown_raw_url",
                f"{shown} is not an address of a remote agent, or has a user name before its host",
                inputBaseUrl=shown,
                normalizedBaseUrl=shown.strip(),
            ) from None

    def _address(self, config: TargetConfig) -> str:
        """Where the target is now. Raises: RemoteFailure."""
        address = substitute(config.base_url, self._environment)
        try:
            return self.normalize(address)
        except ValueError as error:
            shown = _without_user(config.base_url)
            raise _unresolved(
                "unknown_raw_url",
                f'the target "{config.alias}" has an address that cannot be used: {error}',
                inputBaseUrl=shown,
                normalizedBaseUrl=shown,
                hint="use an http or https address, and auth for credentials",
            ) from None

    def _shown(self, config: TargetConfig) -> str:
        """Where the target is, as far as that can be said."""
        try:
            return self._address(config)
        except RemoteFailure:
            return _without_user(config.base_url)

    def _of_config(self, config: TargetConfig, address: str) -> Target:
        identity = TargetIdentity(address, config.card_path, config.preferred_transports)
        return Target(identity, config.alias, config.description, config.auth, config.allowed_hosts)


def not_public(host: str, message: str) -> RemoteFailure:
    """The failure for an address in the operator's own network that only a caller named."""
    return _unresolved(
        "private_address_disallowed_by_policy",
        message,
        host=host,
        allowPrivateTargets=False,
        hint="use target_alias of a configured target; the operator may add this address to "
        "outbound.targets, or set outbound.policy.allowPrivateTargets",
    )


def normalize_url(url: str) -> str:
    """The address with a lower-case host, no default port, and a path, in plain letters.

    Raises:
        ValueError: it is no http(s) address.
    """
    parts = urlsplit(url.strip())
    scheme, host = parts.scheme.lower(), _plain_host((parts.hostname or "").lower())
    if scheme not in _DEFAULT_PORTS or not host:
        raise ValueError("it is no http or https address")
    place = f"[{host}]" if ":" in host else host
    if parts.port is not None and parts.port != _DEFAULT_PORTS[scheme]:
        place = f"{place}:{parts.port}"
    path, query, fragment = (
        quote(part, safe=_PLAIN) for part in (parts.path or "/", parts.query, parts.fragment)
    )
    return urlunsplit((scheme, place, path, query, fragment))


def _plain_host(host: str) -> str:
    if host.isascii():
        return host
    try:
        return httpx.URL(f"http://{host}/").raw_host.decode("ascii")
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from None


def _without_user(url: str) -> str:
    return _USER.sub("//", url)


def _unresolved(reason: str, message: str, **details: object) -> RemoteFailure:
    shown: JsonObject = {"reason": reason, "suggested_action": "list_targets", **details}
    return RemoteFailure(ErrorCode.TARGET_RESOLUTION, message, shown)
