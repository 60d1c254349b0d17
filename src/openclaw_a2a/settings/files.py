"""Reads text and JSON5 files of limited size; completes and checks paths, hosts and URLs."""

import ipaddress
import os
import re
import secrets
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pyjson5

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_object, json_kind

_MAX_NESTING = 100
_MAX_SECRET_BYTES = 1024 * 1024


class FileError(ValueError):
    """Why a file cannot be used: a reason that follows the file's name, and a keyword."""

    def __init__(self, reason: str, keyword: str = "file") -> None:
        super().__init__(reason)
        self.keyword = keyword


def read_text_file(path: Path, *, max_bytes: int) -> str:
    """The text of a file. Raises: FileError."""
    try:
        with path.open("rb") as stream:
            body = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"cannot be read: {reason}; check the path") from None
    if len(body) > max_bytes:
        raise FileError(f"is larger than {max_bytes} bytes")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        reason = f"is not UTF-8 text at line {line}; save it as UTF-8"
        raise FileError(reason, "syntax") from None


def read_secret_file(name: str, folder: Path) -> str | None:
    """The text of a file without blanks around it; None when it has none or cannot be read."""
    try:
        place = expand_path(name, folder)
        if not place.is_file():  # reading a pipe or a device could block
            return None
        return read_text_file(place, max_bytes=_MAX_SECRET_BYTES).strip() or None
    except (OSError, ValueError):
        return None


def read_json5_object(path: Path, *, max_bytes: int) -> JsonObject:
    """The object in a file. Raises: FileError."""
    text = read_text_file(path, max_bytes=max_bytes)
    try:
        value: Json = pyjson5.decode(text, maxdepth=_MAX_NESTING)
    except pyjson5.Json5DecoderException as error:
        raise FileError(_syntax_error_message(text, error), "syntax") from None
    if is_object(value):
        return value
    raise FileError(f"must hold one object, not {json_kind(value)}", "type")


def _syntax_error_message(text: str, error: Exception) -> str:
    """The line and column of a JSON5 syntax error, and what is wrong there."""
    reason = re.sub(r"b'(\w+)'", r"\1", str(error.args[0]) if error.args else "not readable")
    place = re.search(r"(.*?) near (\d+)(, found .*)?", reason)
    if place is None:
        return f"is not JSON5: {reason}"
    what = place[1].replace("JSON5Value", "a value").replace(" starting", "") + (place[3] or "")
    what = re.sub(r"U\+([0-9a-fA-F]{4,6})", lambda code: repr(chr(int(code[1], 16))), what)
    offset = max(0, int(place[2]) - 1)
    if what.startswith("Extra data"):
        what = "more after the end of the object"
        offset += 1 + len(text[offset + 1 :]) - len(text[offset + 1 :].lstrip())
    before = text[:offset]
    line, column = before.count("\n") + 1, offset - before.rfind("\n")
    return f"is not JSON5 at line {line}, column {column}: {what[0].lower()}{what[1:]}"


_ANY_ADDRESS = frozenset({"", "0", "*"})


def write_private_file(
    path: Path, body: bytes, *, durable: bool = False, mode: int = 0o600
) -> None:
    """Replace a file as a whole; unless `mode` says otherwise only its owner can read it.

    A `durable` file is on the disk when this returns. Raises: OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(body)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        draft.chmod(mode)
        draft.replace(path)
        if durable:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def make_private_folder(path: Path, forbidden: int = 0o077) -> str | None:
    """Create a folder that only its owner can use, or remove the rights of others from it.

    Of a folder that exists, the mode bits `forbidden` are removed. Returns a sentence about what
    was changed, or None. Raises: OSError, or PermissionError with a sentence (others may write
    there, and the folder is not ours).
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    # A folder such as /tmp, where all users keep their own files, stays as it is.
    if not mode & forbidden or mode & stat.S_ISVTX:
        return None
    if status.st_uid != os.geteuid():
        if mode & 0o002:
            raise PermissionError(folder_is_open(path, mode))
        return None
    path.chmod(mode & ~forbidden)
    return f"the folder {path} had the mode {mode:04o} and has {mode & ~forbidden:04o} now"


def folder_is_open(path: Path, mode: int) -> str:
    """Why a folder that every user may write to is no place for our files."""
    return (
        f"everybody may write in the folder {path} (mode {mode:04o}), and so replace what is "
        f"stored there; run: chmod go-rwx {path}, or use another folder"
    )


def expand_path(text: str, folder: Path) -> Path:
    """The absolute path: `~` is the home folder, relative ones start at `folder`.

    Raises: ValueError (the text is no path).
    """
    if not text or "\0" in text:
        raise ValueError("it is not a path")
    try:
        expanded = Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError("its home folder is not known") from error
    return Path(os.path.normpath(folder / expanded))


def is_network(text: str) -> bool:
    """True for an IP address and for a network, such as 10.0.0.0/8."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def is_absolute(text: str) -> bool:
    """True for a path that is not relative; `~` counts as absolute."""
    return text.startswith("~") or Path(text).is_absolute()


def is_loopback(host: str) -> bool:
    """True when only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_any_address(host: str) -> bool:
    """True for a host that stands for every address of the machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host in _ANY_ADDRESS


def base_url(host: str, port: int) -> str:
    """The URL of a server on this host and port, as seen from this machine."""
    name = "localhost" if is_any_address(host) else host.strip("[]")
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
