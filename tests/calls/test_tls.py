"""TLS to a service whose certificate an authority of ours signed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from schemas.errors import CallFailed
from streams.calls.grpc_calls import CallContext, GrpcCalls
from streams.calls.targets import Targets
from streams.workflow.runner import CallRequest


def certificate() -> tuple[bytes, bytes]:
    """A key and a certificate for localhost that signs itself, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(hours=1),
        not_valid_after=now + timedelta(hours=1),
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


@pytest.fixture
def secure_service() -> Iterator[tuple[str, bytes]]:
    """The address of an echoing service on TLS, and the authority to trust for it."""
    from concurrent.futures import ThreadPoolExecutor

    private, public = certificate()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Echo()])
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([(private, public)]))
    server.start()
    yield f"localhost:{port}", public
    server.stop(grace=None).wait()


def request_to(target: str) -> CallRequest:
    return CallRequest("score", 0, target, True, "/loan.v1.Scorer/Score", b"ask", 10, "loan.v1.Score")


async def test_a_call_over_tls_reaches_a_service_that_is_trusted(secure_service: tuple[str, bytes]) -> None:
    target, authority = secure_service
    calls = GrpcCalls(Targets(), root_certificates=authority)
    assert await calls(request_to(target), CallContext(uuid4(), 1)) == b"ask"
    await calls.close()


async def test_a_service_that_nobody_vouches_for_gets_no_call(secure_service: tuple[str, bytes]) -> None:
    target, _ = secure_service
    calls = GrpcCalls(Targets())
    with pytest.raises(CallFailed, match="UNAVAILABLE"):
        await calls(request_to(target), CallContext(uuid4(), 1))
    await calls.close()
