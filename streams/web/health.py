"""`/healthz`, `/readyz` and `/metrics`: how this worker is. They show no data and need no token."""

from collections.abc import Callable, Sequence

from aiohttp import web

from streams.health import ServiceHealth, all_alive, all_ready, any_degraded
from streams.metrics import Metrics

Healths = Callable[[], Sequence[ServiceHealth]]


def health_app(healths: Healths, metrics: Metrics) -> web.Application:
    """Return the application of health and metrics.

    `/healthz` is 200 unless a service is dead: an outage elsewhere never makes a restart useful. `/readyz` is 200 while
    every service can work. Both list the services, each with its detail; their status is `ok`, `failing` (503), or
    `degraded`, still with 200: all can work, and somebody has to look, so that one bad event takes no worker away from
    a load balancer. `/metrics` is in Prometheus's text format.
    """

    async def healthz(_: web.Request) -> web.Response:
        services = healths()
        return _answer(services, all_alive(services))

    async def readyz(_: web.Request) -> web.Response:
        services = healths()
        return _answer(services, all_ready(services))

    async def metrics_page(_: web.Request) -> web.Response:
        for service in healths():
            metrics.service_ready.labels(service.name).set(service.alive and service.ready)
        return web.Response(body=metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics_page)
    return app


def _answer(services: Sequence[ServiceHealth], good: bool) -> web.Response:
    status = "failing" if not good else "degraded" if any_degraded(services) else "ok"
    body = {"status": status, "services": [_told(service) for service in services]}
    return web.json_response(body, status=200 if good else 503)


def _told(service: ServiceHealth) -> dict[str, str | bool]:
    told: dict[str, str | bool] = {
        "name": service.name,
        "alive": service.alive,
        "ready": service.ready,
        "degraded": service.degraded,
    }
    return {**told, "detail": service.detail} if service.detail else told
