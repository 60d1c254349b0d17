"""The targets that requests may name: by alias, by address, or by default."""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.url_policy import url_rejection_reason
from openclaw_a2a.remote.config import OutboundConfig, TargetConfig, Transport
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.target_secrets import has_variables, substitute

_USERINFO = re.compile(r"//[^/?#]*@")
"""The user name and password before the host of an address."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNQUOTED = "%/?:@!$&'()*+,;=~"


TargetIdentity = tuple[str, str, tuple[Transport, ...]]
"""Two targets are the same when address, card path and order of transports are."""


class Target(TargetConfig, frozen=True):
    """A remote agent that requests can be sent to, at its resolved address.

    It is configured, or a caller has named it: then its alias is usually empty.
    """

    is_caller_named: bool = False
    """True when the operator did not configure the address: every connection is checked then."""

    @property
    def identity(self) -> TargetIdentity:
        """What distinguishes it from other targets."""
        return self.base_url, self.card_path, self.preferred_transports

    @property
    def card_url(self) -> str:
        """The address of its card, below its own address."""
        base = urlsplit(self.base_url)
        path = f"{base.path.rstrip('/')}/{self.card_path.lstrip('/')}"
        return urlunsplit((base.scheme, base.netloc, path, base.query, ""))

    def as_object(self) -> JsonObject:
        """The target in error details, without its secrets."""
        details: JsonObject = {
            "baseUrl": self.base_url,
            "cardPath": self.card_path,
            "preferredTransports": [one.value for one in self.preferred_transports],
        }
        return {**details, "alias": self.alias} if self.alias else details


class TargetDirectory:
    """Finds configured targets, and decides about all other addresses."""

    def __init__(self, config: OutboundConfig, environment: Mapping[str, str]) -> None:
        self._config = config
        self._environment = environment
        self._default = config.default_target
        self.has_default = self._default is not None
        self._configs = {one.alias: one for one in config.targets}
        self._fixed: dict[str, Target] = {}
        """Targets whose address has no variables, which are resolved only once."""

    @property
    def configured(self) -> tuple[Target, ...]:
        """All configured targets, with the environment as it is now.

        An address that cannot be resolved is shown as it is configured.
        """
        found: list[Target] = []
        for one in self._config.targets:
            try:
                found.append(self._resolve(one))
            except RemoteFailure:
                found.append(_build(one, _without_userinfo(one.base_url)))
        return tuple(found)

    @property
    def default(self) -> Target | None:
        """The target of requests that name none. Raises: RemoteFailure."""
        return None if self._default is None else self.by_alias(self._default.alias)

    def normalize(self, url: str) -> str:
        """The address in the form in which addresses are compared. Raises: ValueError."""
        if _USERINFO.search(url):
            raise ValueError("an address must not hold a user name or a password")
        return normalize_target_url(url) if self._config.policy.normalize_base_url else url.strip()

    def by_alias(self, alias: str) -> Target:
        """The target with this alias. Raises: RemoteFailure."""
        if alias in self._configs:
            return self._resolve(self._configs[alias])
        raise _unresolved(
            "unknown_alias",
            f'there is no target "{alias}"; list_targets shows those there are',
            alias=alias,
            availableAliases=list(self._config.aliases),
        )

    def configured_at(self, url: str) -> list[Target]:
        """The configured targets at this address."""
        try:
            wanted = self.normalize(url)
        except ValueError:
            return []
        return [target for target in self.configured if target.base_url == wanted]

    def by_url(self, url: str) -> Target:
        """The target at this address, configured or (when allowed) any. Raises: RemoteFailure."""
        found = self.configured_at(url)
        if len(found) == 1:
            return found[0]
        try:
            normalized = self.normalize(url)
        except ValueError:
            shown = _without_userinfo(url)
            raise _unresolved(
                "unknown_raw_url",
                f"{shown} is not an address of a remote agent, or has a user name before its host",
                inputBaseUrl=shown,
                normalizedBaseUrl=shown.strip(),
            ) from None
        if found:
            raise _unresolved(
                "ambiguous_normalized_url_matches",
                f"several targets are at {normalized}; name one by its alias",
                normalizedBaseUrl=normalized,
                aliases=[target.alias for target in found],
                hint="use target_alias",
            )
        if not self._config.policy.allow_target_url_override:
            raise self.url_not_allowed(url, normalized)
        defaults = self._config.defaults
        target = Target(
            alias="",
            base_url=normalized,
            card_path=defaults.card_path,
            preferred_transports=defaults.preferred_transports,
        )
        return self.allow_caller_named(target)

    def allow_caller_named(self, target: Target) -> Target:
        """The target, when a caller may name its address. Raises: RemoteFailure (it is private)."""
        reason = url_rejection_reason(target.base_url)
        if reason is not None and not self._config.policy.allow_private_targets:
            host = urlsplit(target.base_url).hostname or ""
            raise private_address_error(host, f"{target.base_url} {reason}, which is not allowed")
        return msgspec.structs.replace(target, is_caller_named=True)

    def url_not_allowed(self, url: str, normalized: str) -> RemoteFailure:
        """The failure for an address that is not configured."""
        shown = _without_userinfo(normalized)
        return _unresolved(
            "raw_url_disallowed_by_policy",
            f"{shown} is not a configured target, and the policy allows no other",
            inputBaseUrl=_without_userinfo(url),
            normalizedBaseUrl=shown,
            allowTargetUrlOverride=False,
            configuredAliases=list(self._config.aliases),
            hint="use target_alias, or set outbound.policy.allowTargetUrlOverride",
        )

    def _resolve(self, config: TargetConfig) -> Target:
        """The target at its address with the values of the environment. Raises: RemoteFailure."""
        if config.alias in self._fixed:
            return self._fixed[config.alias]
        address = substitute(config.base_url, self._environment)
        try:
            target = _build(config, self.normalize(address))
        except ValueError as error:
            shown = _without_userinfo(config.base_url)
            raise _unresolved(
                "unknown_raw_url",
                f'the target "{config.alias}" has an address that cannot be used: {error}',
                inputBaseUrl=shown,
                normalizedBaseUrl=shown,
                hint="use an http or https address, and auth for credentials",
            ) from None
        if not has_variables(config.base_url):
            self._fixed[config.alias] = target
        return target


def _build(config: TargetConfig, url: str) -> Target:
    resolved = msgspec.structs.replace(config, base_url=url)
    return Target(**msgspec.structs.asdict(resolved))


def private_address_error(host: str, message: str) -> RemoteFailure:
    """The failure for a private address that only a caller named."""
    return _unresolved(
        "private_address_disallowed_by_policy",
        message,
        host=host,
        allowPrivateTargets=False,
        hint="use target_alias of a configured target; the operator may add this address to "
        "outbound.targets, or set outbound.policy.allowPrivateTargets",
    )


def normalize_target_url(url: str) -> str:
    """The address with a lower-case ASCII host, no default port, and a path.

    Raises:
        ValueError: it is not an http or https address.
    """
    parts = urlsplit(url.strip())
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if not host.isascii():
        import httpx2  # slow to load, and hardly ever needed here

        try:
            host = httpx2.URL(f"http://{host}/").raw_host.decode("ascii")
        except httpx2.InvalidURL as error:
            raise ValueError(str(error)) from None
    if scheme not in _DEFAULT_PORTS or not host:
        raise ValueError("it is not an http or https address")
    place = f"[{host}]" if ":" in host else host
    if parts.port is not None and parts.port != _DEFAULT_PORTS[scheme]:
        place = f"{place}:{parts.port}"
    path, query, fragment = (
        quote(part, safe=_UNQUOTED) for part in (parts.path or "/", parts.query, parts.fragment)
    )
    return urlunsplit((scheme, place, path, query, fragment))


def _without_userinfo(url: str) -> str:
    return _USERINFO.sub("//", url)


def _unresolved(reason: str, message: str, **details: object) -> RemoteFailure:
    shown: JsonObject = {"reason": reason, "suggested_action": "list_targets", **details}
    return RemoteFailure(ErrorCode.TARGET_RESOLUTION, message, shown)
