"""The service that every step calls: `python -m tests.bench.noop_service PORT`. It answers what it was sent.

Only `Many` answers a thousand items instead.
"""

import sys
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import uvloop

from streams.dev.ports import LOOPBACK
from tests.bench.workload import MANY, many_items

if TYPE_CHECKING:
    _Handler = grpc.GenericRpcHandler[bytes, bytes]
else:
    _Handler = grpc.GenericRpcHandler  # generic in the stubs alone


class _Echo(_Handler):
    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Serve whatever method is called (gRPC's interface)."""
        return grpc.unary_unary_rpc_method_handler(_many if details.method == f"/{MANY}" else _echo)


async def _many(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    return many_items()


async def _echo(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    return request


async def serve(port: int) -> None:
    """Serve on 127.0.0.1 until the process is ended."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers([_Echo()])
    server.add_insecure_port(f"{LOOPBACK}:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
