"""Store URLs: text -> `StoreUrl`, whose text never shows a password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from monitoring.errors import StoreUrlError

EMBEDDED = "chdb"
SERVER = "clickhouse"
SECURE = "clickhouses"
MEMORY = "memory"
NULL = "null"
SCHEMES = (EMBEDDED, SERVER, SECURE, MEMORY, NULL)

DEFAULT_PORTS = {SERVER: 8123, SECURE: 8443}

EXPECTED = (
    "expected a folder, chdb://FOLDER, clickhouse://[USER:PASSWORD@]HOST[:PORT]/DATABASE, "
    "clickhouses://... (TLS), memory: or null:"
)

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

OPTIONS: Mapping[str, str] = {
    "table": "name of the captures table (default: captures); NAME_runs then holds the runs",
    "cluster": "cluster of ON CLUSTER, Replicated and Distributed tables",
    "replicated": "1: ReplicatedReplacingMergeTree",
    "engine": "MergeTree or Null (keep nothing: for measuring)",
    "timeout": "seconds for one request",
    "ca_cert": "file of the certificate authority that signed the server (clickhouses:// only)",
}
"""What may follow `?` in a server's URL."""


@dataclass(frozen=True, kw_only=True)
class StoreUrl:
    """A parsed store URL; `str()` and `repr()` leave the password out.

    `location` is the folder of an embedded store or the name of a memory store.
    """

    scheme: str
    location: str = ""
    host: str = ""
    port: int = 0
    database: str = "default"
    user: str = ""
    password: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Give the URL without credentials."""
        if self.scheme not in DEFAULT_PORTS:
            return f"{self.scheme}:{self.location}" if self.scheme != EMBEDDED else f"chdb://{self.location}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = "&".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.scheme}://{host}:{self.port}/{self.database}{'?' + query if query else ''}"


def parse_store_url(text: str) -> StoreUrl:
    """Parse a path or URL; raises `StoreUrlError` saying what was found, without its credentials."""
    if not text.strip():
        raise StoreUrlError("the store is an empty string", hint=EXPECTED)
    if "\0" in text:
        raise StoreUrlError("the store's address holds a NUL character", hint=EXPECTED)
    scheme, colon, rest = text.partition(":")
    if not colon or (scheme not in SCHEMES and "://" not in text):
        return StoreUrl(scheme=EMBEDDED, location=_folder(text))
    if scheme not in SCHEMES:
        raise StoreUrlError(f"the store has scheme {scheme!r}, which is none of {', '.join(SCHEMES)}", hint=EXPECTED)
    if scheme in (MEMORY, NULL):
        name = rest.removeprefix("//")
        if scheme == NULL and name:
            raise StoreUrlError(f"null: takes no name, found {name!r}", hint=EXPECTED)
        return StoreUrl(
            scheme=scheme, location=check_identifier(name, what="the name of a memory store") if name else ""
        )
    if not rest.startswith("//"):
        raise StoreUrlError(f"{scheme}: must be followed by //", hint=EXPECTED)
    if scheme == EMBEDDED:
        return StoreUrl(scheme=scheme, location=_folder(rest[2:]))
    return _parse_server(text, scheme)


def check_identifier(text: str, *, what: str) -> str:
    """Give `text` back if it may stand in SQL as a name; raises `StoreUrlError`."""
    if not IDENTIFIER.fullmatch(text):
        raise StoreUrlError(
            f"{what} is {text!r}, expected a letter or _ followed by letters, digits or _ (at most 63 characters)"
        )
    return text


def _folder(text: str) -> str:
    if not text:
        raise StoreUrlError("chdb:// names no folder", hint=EXPECTED)
    return str(Path(text).expanduser())


def _parse_server(text: str, scheme: str) -> StoreUrl:
    # A password with an unescaped / or # cuts the authority short; whatever is left of it must not be shown.
    shown = f"{scheme}://..."
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname or ""
    except ValueError:
        raise StoreUrlError(
            f"the host or port of {shown} cannot be read",
            hint=f"{EXPECTED}; escape / # ? @ : in a password as %2F and so on",
        ) from None
    if not host:
        raise StoreUrlError(f"{shown} names no host", hint=EXPECTED)
    if re.search(r"[^A-Za-z0-9.:_%-]", host):
        raise StoreUrlError(f"the host of {shown} holds a character that no host has", hint=EXPECTED)
    if port == 0:
        raise StoreUrlError(f"the port of {shown} is 0, expected 1 to 65535", hint=EXPECTED)
    if parts.fragment:
        raise StoreUrlError(f"{shown} holds a #", hint="write # in a password as %23")
    database = unquote(parts.path.removeprefix("/"))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    for what, value in (("user", user), ("password", password)):
        if any(ord(character) < 32 for character in value):
            raise StoreUrlError(f"the {what} of {shown} holds a control character")
    options = _parse_options(parts.query)
    if "ca_cert" in options and scheme != SECURE:
        raise StoreUrlError(f"ca_cert needs {SECURE}://, found {scheme}://")
    return StoreUrl(
        scheme=scheme, host=host, port=port or DEFAULT_PORTS[scheme], user=user, password=password,
        database=check_identifier(database, what=f"the database of {scheme}://{host}") if database else "default",
        options=options,
    )  # fmt: skip


def _parse_options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in OPTIONS:
            # The key may be a piece of a password that was not escaped: say how many characters, not which.
            raise StoreUrlError("the URL has an unknown option after ?", hint=f"options: {', '.join(OPTIONS)}")
        if key in options:
            raise StoreUrlError(f"the URL gives {key} twice")
        options[key] = value
    for key in ("table", "cluster"):
        if key in options:
            check_identifier(options[key], what=key)
    if options.get("replicated", "0") not in ("0", "1"):
        raise StoreUrlError(f"replicated is {options['replicated']!r}, expected 0 or 1")
    if options.get("engine", "MergeTree") not in ("MergeTree", "Null"):
        raise StoreUrlError(f"engine is {options['engine']!r}, expected MergeTree or Null")
    if "timeout" in options and not _is_seconds(options["timeout"]):
        raise StoreUrlError(f"timeout is {options['timeout']!r}, expected seconds above 0, say 30")
    return options


def _is_seconds(text: str) -> bool:
    return re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text) is not None and float(text) > 0
