"""Free ports."""

import socket
from pathlib import Path

from streams.dev.ports import accepts, free_port, free_ports


def test_ports_asked_for_together_differ_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_a_port_in_use_is_not_given_out() -> None:
    with socket.socket() as listener:
        port = free_port()
        listener.bind(("127.0.0.1", port))
        listener.listen()
        assert accepts(port)
        assert port not in free_ports(2_000)
    assert not accepts(port)


def test_ports_lie_outside_the_range_of_outgoing_connections() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not any(first <= port <= last for port in free_ports(100))
