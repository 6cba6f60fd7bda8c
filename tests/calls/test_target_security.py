"""What secures a target: authorities, client certificates, names, tokens and limits, against real servers on TLS."""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import grpc
import pytest

from schemas.errors import CallFailed, SettingsInvalid
from streams.calls.grpc_calls import CallContext, GrpcCalls
from streams.calls.targets import Targets
from streams.workflow.runner import CallRequest
from tests.fixtures.certificates import Authority
from tests.fixtures.grpc_server import Answer, ScriptedServer
from tests.fixtures.plain_listener import TLS_HANDSHAKE, listening

METHOD = "/loan.v1.Scorer/Score"
TOKEN = "very-secret-token-0123456789"


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """Answers what it was sent, and keeps the metadata. With *blabs* it fails, telling the authorization."""

    def __init__(self, *, blabs: bool) -> None:
        self.calls: list[dict[str, str]] = []
        self._blabs = blabs

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        self.calls.append(metadata)
        if self._blabs:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, f"who is {metadata.get('authorization')}?")
        return request


@contextmanager
def serving(
    authority: Authority, host: str = "localhost", *, asks: bool = False, blabs: bool = False
) -> Iterator[tuple[str, Echo]]:
    """A service with a certificate for *host*. *asks* it for the clients' certificates too."""
    echo, issued = Echo(blabs=blabs), authority.issue(host)
    server = grpc.server(ThreadPoolExecutor(2), handlers=[echo])
    credentials = grpc.ssl_server_credentials(
        [(issued.key, issued.certificate)], authority.certificate if asks else None, require_client_auth=asks
    )
    port = server.add_secure_port("localhost:0", credentials)
    server.start()
    yield f"localhost:{port}", echo
    server.stop(grace=None).wait()


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[str, Echo]]]:
    with ExitStack() as stack:
        yield lambda *given, **options: stack.enter_context(serving(*given, **options))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def write(folder: Path, **entry: object) -> Path:
    """A file with one target `scorer`; members that are bytes become files of their own."""
    for name, value in entry.items():
        if isinstance(value, bytes):
            (folder / f"{name}.pem").write_bytes(value)
            entry[name] = f"{name}.pem"
    (file := folder / "targets.yaml").write_text(json.dumps({"scorer": entry}))
    return file


@asynccontextmanager
async def calling(targets: Targets) -> AsyncIterator[Callable[..., Awaitable[bytes]]]:
    calls = GrpcCalls(targets)

    async def call(target: str = "scorer", payload: bytes = b"ask", *, tls: bool = False) -> bytes:
        request = CallRequest("score", 0, target, tls, METHOD, payload, 10, "loan.v1.Score")
        return await calls(request, CallContext(uuid4(), 1))

    yield call
    await calls.close()


async def called(file: Path) -> bytes:
    async with calling(Targets(file)) as call:
        return await call()


async def test_a_target_is_trusted_by_its_own_authority(
    serve: Callable[..., tuple[str, Echo]], authority: Authority, tmp_path: Path
) -> None:
    address, _ = serve(authority)

    assert await called(write(tmp_path, address=address, tls=True, ca_file=authority.certificate)) == b"ask"


async def test_a_service_that_another_authority_vouches_for_gets_no_call(
    serve: Callable[..., tuple[str, Echo]], authority: Authority, tmp_path: Path
) -> None:
    address, echo = serve(authority)
    file = write(tmp_path, address=address, tls=True, ca_file=Authority("another").certificate, token_file=b"secret-0")

    with pytest.raises(CallFailed, match="UNAVAILABLE") as failed:
        await called(file)

    assert failed.value.retryable
    assert "secret-0" not in str(failed.value)
    assert echo.calls == []


async def test_a_certificate_for_another_name_gets_no_call_unless_that_name_is_expected(
    serve: Callable[..., tuple[str, Echo]], authority: Authority, tmp_path: Path
) -> None:
    address, echo = serve(authority, "scorer.internal")
    secured = {"address": address, "tls": True, "ca_file": authority.certificate}

    with pytest.raises(CallFailed, match="UNAVAILABLE"):
        await called(write(tmp_path, **secured))
    assert echo.calls == []

    assert await called(write(tmp_path, **secured, server_name="scorer.internal")) == b"ask"


async def test_a_service_that_asks_for_a_certificate_is_shown_one(
    serve: Callable[..., tuple[str, Echo]], authority: Authority, tmp_path: Path
) -> None:
    address, echo = serve(authority, asks=True)
    secured = {"address": address, "tls": True, "ca_file": authority.certificate}
    ours = authority.issue("worker")

    with pytest.raises(CallFailed, match="UNAVAILABLE"):
        await called(write(tmp_path, **secured))
    assert echo.calls == []

    assert await called(write(tmp_path, **secured, cert_file=ours.certificate, key_file=ours.key)) == b"ask"


async def test_a_token_goes_with_each_call_and_the_newest_one_is_taken(
    serve: Callable[..., tuple[str, Echo]],
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address, echo = serve(authority)
    file = write(tmp_path, address=address, tls=True, ca_file=authority.certificate, token_file=b"first\n")
    now = 0.0
    async with calling(Targets(file, clock=lambda: now)) as call:
        await call()
        (tmp_path / "token_file.pem").write_text("second")
        now = 2.0
        await call()
        (tmp_path / "token_file.pem").write_text(f"two {TOKEN}")  # no token any more: the last one stays
        now = 4.0
        with caplog.at_level(logging.DEBUG):
            await call()

    assert [sent["authorization"] for sent in echo.calls] == ["Bearer first", "Bearer second", "Bearer second"]
    assert "the targets stay as they were" in caplog.text
    assert TOKEN not in caplog.text


async def test_a_service_that_tells_the_token_in_its_error_puts_it_nowhere(
    serve: Callable[..., tuple[str, Echo]],
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address, _ = serve(authority, blabs=True)
    file = write(tmp_path, address=address, tls=True, ca_file=authority.certificate, token_file=TOKEN.encode())

    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(CallFailed, match=r"UNAUTHENTICATED: who is Bearer \*\*\*\?") as failed,
    ):
        await called(file)

    assert not failed.value.retryable
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(Targets(file).find("scorer"))


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"ca_file": b"-----BEGIN SECRET-----"}, "has no certificate of an authority"),
        ({"cert_file": b"nonsense", "key_file": b"hidden-key"}, "not a certificate with its key"),
        ({"token_file": b"two words"}, "must hold one token"),
        ({"token_file": b""}, "must hold one token"),
        ({"token_file": "no-such-file"}, "cannot be read"),
        ({"ca_file": "../nowhere/ca.pem"}, "cannot be read"),
    ],
)
def test_what_cannot_secure_a_call_stops_the_start_and_is_not_told(
    entry: dict[str, object], fault: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsInvalid, match=fault) as refused:
        Targets(write(tmp_path, address="localhost:1", tls=True, **entry))

    for secret in ("SECRET", "nonsense", "hidden-key", "two words"):
        assert secret not in str(refused.value)


def test_a_key_of_another_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    one, other = authority.issue("one"), authority.issue("other")

    with pytest.raises(SettingsInvalid, match="not a certificate with its key") as refused:
        Targets(write(tmp_path, address="localhost:1", tls=True, cert_file=one.certificate, key_file=other.key))

    assert "BEGIN" not in str(refused.value)


async def test_the_limits_of_a_target_bound_its_calls(grpc_server: ScriptedServer, tmp_path: Path) -> None:
    grpc_server.script(METHOD, Answer(b"x" * 2_000))
    file = write(tmp_path, address=grpc_server.target, call_seconds=3, message_bytes=1_024)

    async with calling(Targets(file)) as call:
        with pytest.raises(CallFailed, match=r"RESOURCE_EXHAUSTED.*2000 vs\. 1024") as too_large:
            await call()
        with pytest.raises(CallFailed, match=r"RESOURCE_EXHAUSTED.*1025 vs\. 1024"):
            await call(payload=b"x" * 1_025)

    assert not too_large.value.retryable
    [received] = grpc_server.calls(METHOD)
    assert received.seconds_left is not None
    assert received.seconds_left <= 3.1  # gRPC rounds the time that it sends


@pytest.mark.spec(50)
@pytest.mark.parametrize("asked_by", ["the step", "the target", "both", "a literal"])
async def test_tls_is_never_given_up_for_plaintext(asked_by: str, tmp_path: Path) -> None:
    with listening() as listener:
        file = write(tmp_path, address=listener.address, tls=asked_by in ("the target", "both"))
        async with calling(Targets(file)) as call:
            with pytest.raises(CallFailed, match="UNAVAILABLE"):
                await call(listener.address if asked_by == "a literal" else "scorer", tls=asked_by != "the target")

    assert {first[:2] for first in listener.heard} == {TLS_HANDSHAKE}
