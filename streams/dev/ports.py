"""Free TCP ports on loopback."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_LOWEST: Final = 20_000
_HIGHEST: Final = 65_535
# Where the system does not say from which port on it serves outgoing connections: the registered dynamic range.
_EPHEMERAL_FROM: Final = 49_152


def free_port() -> int:
    """Return one port as `free_ports` does."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return `count` different ports of 127.0.0.1 that nobody listens on now.

    They lie outside the range from which the system serves outgoing connections. So a server that is stopped and
    started again finds its port still free, and a client that retries meanwhile never connects to itself.
    Nothing is reserved: start the server soon.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for port in random.sample(_candidates(), k=len(_candidates())):
            if len(ports) == count:
                return ports
            if _hold(held, port):
                ports.append(port)
    raise OSError(f"no {count} free ports on {LOOPBACK}")


def accepts(port: int) -> bool:
    """Tell whether somebody accepts connections on this port of 127.0.0.1."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=0.5).close()
    except OSError:
        return False
    return True


def _hold(held: ExitStack, port: int) -> bool:
    listener = held.enter_context(socket.socket())
    try:
        listener.bind((LOOPBACK, port))
    except OSError:
        return False
    return True


def _candidates() -> range:
    first, last = _ephemeral()
    below, above = range(_LOWEST, first), range(last + 1, _HIGHEST + 1)
    return max(below, above, key=len)


def _ephemeral() -> tuple[int, int]:
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except OSError:
        return _EPHEMERAL_FROM, _HIGHEST
    return int(first), int(last)
