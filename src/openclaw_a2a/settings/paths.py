"""Completes and checks paths, hosts and URLs from the settings."""

import ipaddress
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

_ANY_ADDRESS = frozenset({"0.0.0.0", "::", "*"})  # noqa: S104 - told apart here, not bound to


def expand_path(text: str, folder: Path) -> Path:
    """The absolute path: `~` is the home folder, relative ones start at `folder`.

    Raises:
        ValueError: the text is no path.
    """
    if not text or "\0" in text:
        raise ValueError("it is not a path")
    try:
        expanded = Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError("its home folder is not known") from error
    return Path(os.path.normpath(folder / expanded))


def is_absolute(text: str) -> bool:
    """True for a path that is not relative; `~` counts as absolute."""
    return text.startswith("~") or Path(text).is_absolute()


def is_loopback(host: str) -> bool:
    """True when only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def base_url(host: str, port: int) -> str:
    """The URL of a server on this host and port, as seen from this machine."""
    name = "localhost" if host in _ANY_ADDRESS else host.strip("[]")
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def normalize_base_url(text: str) -> str | None:
    """The http(s) URL without a trailing slash; None when it is not one."""
    address = text.strip().rstrip("/")
    try:
        parts = urlsplit(address)
        has_port_in_range = parts.port is None or parts.port >= 0
    except ValueError:
        return None
    is_plain = not (parts.query or parts.fragment or parts.username or re.search(r"\s", address))
    is_web = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return address if is_web and is_plain and has_port_in_range else None
