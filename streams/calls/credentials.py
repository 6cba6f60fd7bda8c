"""What a connection to one target is secured with: read from files, checked before anything is dialled.

Nothing that is secret goes into an error, a log line or a `repr`.
"""

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from schemas.errors import InputInvalid

T = TypeVar("T")

MOST_BYTES: Final = 1 << 20
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Whom a client believes, and how it shows who it is. All None: the authorities that gRPC brings, and nobody.

    `authorities`, `certificate` and `key` are PEM. `server_name` is what the server's certificate must be for, where
    that is not the host of the address.
    """

    authorities: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None


ANONYMOUS: Final = Credentials()

FILES: Final = ("ca_file", "cert_file", "key_file", "token_file")
"""Members of a target that name files; a relative path starts at the folder of the file of targets."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The credentials of a target, and the bearer token that its calls carry."""

    credentials: Credentials = ANONYMOUS
    token: str | None = field(default=None, repr=False)


def read_secrets(entry: Mapping[str, object], folder: Path) -> Secrets:
    """Read the files that a target names.

    Raises:
        InputInvalid: a file is missing or is not what it should be; the sentence names the member and the file.
    """
    paths = {name: folder / str(entry[name]) for name in FILES if name in entry}
    read = {name: _read(name, path) for name, path in paths.items()}
    if "ca_file" in read:
        _checked(
            f"ca_file {paths['ca_file']} has no certificate of an authority in PEM",
            lambda: ssl.create_default_context(cadata=read["ca_file"].decode("ascii")),
        )
    if "cert_file" in read:
        what = f"cert_file {paths['cert_file']} and key_file {paths['key_file']} are not a certificate with its key"
        _checked(f"{what}, in PEM and without a password", lambda: _try_pair(paths["cert_file"], paths["key_file"]))
    server_name = entry.get("server_name")
    credentials = Credentials(
        authorities=read.get("ca_file"),
        certificate=read.get("cert_file"),
        key=read.get("key_file"),
        server_name=str(server_name) if server_name is not None else None,
    )
    return Secrets(credentials, _token(read["token_file"], paths["token_file"]) if "token_file" in read else None)


def _read(name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputInvalid(f"{name} {path} cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise InputInvalid(f"{name} {path} has over {MOST_BYTES:,} bytes")
    return content


def _token(content: bytes, path: Path) -> str:
    text = content.decode("ascii", errors="replace").strip()
    if not _TOKEN.fullmatch(text):
        raise InputInvalid(f"token_file {path} must hold one token: printable ASCII without blanks")
    return text


def _try_pair(certificate: Path, key: Path) -> None:
    # A key with a password would ask for it on the terminal.
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, password="")


def _checked(fault: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except (ssl.SSLError, ValueError, OSError):
        raise InputInvalid(fault) from None
