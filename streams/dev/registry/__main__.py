"""`python -m streams.dev.registry --port N`: the registry as a process, on 127.0.0.1."""

import argparse

from aiohttp import web

from streams.dev.ports import LOOPBACK
from streams.dev.registry.api import create_app


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m streams.dev.registry", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="the port of 127.0.0.1 to listen on")
    web.run_app(create_app(), host=LOOPBACK, port=parser.parse_args().port, print=None, handle_signals=True)


if __name__ == "__main__":
    main()
