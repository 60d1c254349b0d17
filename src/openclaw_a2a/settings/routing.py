"""How the answers of calls come back: what its members do not tell by themselves is checked."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.settings.keys import PEER_NAME
from openclaw_a2a.settings.report import Report, join
from openclaw_a2a.settings.shape import ResponseRoutingSettings, ToolSettings, WebhookSettings
from openclaw_a2a.settings.token import anchored, read_token

_PATH = "responseRouting"


def complete_routing(
    section: ResponseRoutingSettings, *, environ: Mapping[str, str], folder: Path, report: Report
) -> ResponseRoutingSettings:
    """The section with references that need no folder; what is wrong is a problem."""
    if section.default_timeout_ms > section.max_timeout_ms:
        message = f"is more than maxTimeoutMs ({section.max_timeout_ms}); lower it, or raise that"
        report.problem(join(_PATH, "defaultTimeoutMs"), message, "range")
    webhooks: dict[str, WebhookSettings] = {}
    for name, webhook in sorted(section.webhooks.items()):
        place = join(join(_PATH, "webhooks"), name)
        if not re.fullmatch(PEER_NAME, name):
            message = "is no caller's name; see: openclaw-a2a token list"
            report.problem(place, message, "name")
        if not _is_address(webhook.url):
            message = "must be an http(s) address without user and fragment"
            report.problem(join(place, "url"), message, "format")
        webhooks[name] = msgspec.structs.replace(webhook, token=anchored(webhook.token, folder))
        _check_token(join(place, "token"), webhooks[name].token, environ=environ, report=report)
    return msgspec.structs.replace(section, webhooks=webhooks)


def warn_if_nobody_may_call(section: ToolSettings, report: Report) -> ToolSettings:
    """The section; calls that are on although nobody takes part in them are worth a warning."""
    between = section.agent_to_agent
    if between.enabled and not between.allow:
        message = (
            "is empty, so every call is forbidden; write the agents that may call and be called, "
            'such as ["main", "helper"], or ["*"] for all'
        )
        report.warning("tools.agentToAgent.allow", message, "nobody")
    return section


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_plain = not (parts.fragment or "@" in parts.netloc or re.search(r"[\s\x00-\x1f]", text))
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and is_plain and has_port


def _check_token(path: str, reference: str, *, environ: Mapping[str, str], report: Report) -> None:
    """A token that is not there would be missed only when an answer is to be brought."""
    if not reference:
        return
    if not re.match(r"(env|file):.", reference):
        message = "must be a reference, not the token itself: write env:NAME or file:PATH"
        report.problem(path, message, "secret")
        return
    try:
        read_token(reference, environ=environ)
    except SettingsInvalid as error:
        report.problem(path, error.message, "secret")
