"""Both web servers of a worker as one service."""

import logging
from typing import Final

from aiohttp import web

from schemas.errors import SettingsInvalid
from streams.health import ServiceHealth
from streams.settings import split_address

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 2.0


class WebServer:
    """Serves one application on each address. Port 0 picks a free one; `addresses` says which."""

    def __init__(self, apps: dict[str, web.Application]) -> None:
        self._apps = apps
        self._runners: list[web.AppRunner] = []
        self.addresses: dict[str, str] = {}

    async def start(self) -> None:
        """Listen on every address.

        Raises:
            SettingsInvalid: an address is taken or is not this machine's; nothing is left listening.
        """
        for bind, app in self._apps.items():
            host, port = split_address(bind)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS, handle_signals=False)
            self._runners.append(runner)
            await runner.setup()
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as error:
                await self.stop()
                raise SettingsInvalid([f"cannot listen on {bind}: {error.strerror or error}"]) from error
            bound = runner.addresses[0]
            self.addresses[bind] = f"http://{f'[{host}]' if ':' in host else host}:{bound[1]}"
            log.info("listening on %s", self.addresses[bind])

    async def stop(self) -> None:
        """Stop listening; requests in hand get two seconds."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    def health(self) -> ServiceHealth:
        return ServiceHealth("web", alive=True, ready=bool(self._runners), detail=", ".join(self.addresses.values()))
