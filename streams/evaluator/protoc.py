"""Compiling people's .proto sources: the compiler runs in a child process, in a folder of its own, within limits."""

import asyncio
import hashlib
import re
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from schemas.errors import InputInvalid, ResourceExhausted
from schemas.strict_json import canonical
from streams.workflow.validation_file import VALIDATION_FILE, validation_file

COMPILE_SECONDS: Final = 10.0
MEMORY_BYTES: Final = 1 << 30
"""Address space of the child, most of which is the interpreter's and never touched."""

OUTPUT_BYTES: Final = 8 << 20
MAX_SOURCES: Final = 1_000
MAX_PATH_LENGTH: Final = 200
MAX_ERROR_LENGTH: Final = 4_000
"""Bytes of the compiler's text that are told; more are its follow-up errors."""

_CHILD: Final = Path(__file__).with_name("protoc_child.py")
_OUTPUT: Final = "out.descriptors"
_ERRORS: Final = "errors.txt"
_SUPPLIED: Final = "supplied.descriptors"
# The compiler takes paths as arguments, where a leading - or @ would mean something else.
_PATH: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*/)*[A-Za-z0-9_][A-Za-z0-9_.+-]*\.proto")

# Lines of the compiler's own log, which name its source files and tell people nothing.
_LOG_LINES: Final = re.compile(r"^(?:WARNING: All log messages|[IWEF][0-9]{4} ).*\n?", re.MULTILINE)


class ProtocChild:
    """A `Protoc` (see streams.workflow.descriptors) that starts one child per compilation, a few at a time.

    Results are kept by the content of the sources, so that a definition that comes again costs nothing. The well-known
    files of google/protobuf can be imported without being sent, and so can the file of options for rules.
    """

    def __init__(
        self,
        *,
        seconds: float = COMPILE_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        most_at_once: int = 2,
        kept: int = 64,
        kept_bytes: int = 16 << 20,
        python: str = sys.executable,
    ) -> None:
        self._seconds = seconds
        self._memory_bytes = memory_bytes
        self._python = python
        self._turns = asyncio.Semaphore(most_at_once)
        self._results = _Results(kept, kept_bytes)

    async def __call__(self, sources: Mapping[str, str], root: str | None) -> bytes:
        """A serialized FileDescriptorSet of the sources, or of *root* and what it imports, imports included.

        Raises:
            InputInvalid: a path is not one, or the sources do not compile within the limits: code `compile-failed` with
                the compiler's text, whose paths are those of the sources.
            ResourceExhausted: this machine could not start or hold the compiler. Try later.
        """
        _check_paths(sources)
        key = hashlib.sha256(canonical({"sources": dict(sources), "root": root}).encode()).digest()
        found = self._results.get(key)
        if found is None:
            async with self._turns:
                found = await self._compile(sources, sorted(sources) if root is None else [root])
            self._results.keep(key, found)
        return found

    async def _compile(self, sources: Mapping[str, str], roots: list[str]) -> bytes:
        try:
            with tempfile.TemporaryDirectory(prefix="workflow-runs-protoc-") as name:
                folder = Path(name)
                for path, text in sources.items():
                    file = folder / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(text.encode())
                supplied = [f"--descriptor_set_in={_SUPPLIED}"] if _supply(folder, sources) else []
                with (folder / _ERRORS).open("w+b") as errors:
                    status = await self._run(folder, [*supplied, *roots], errors)
                    if status != 0:
                        errors.seek(0)
                        said = errors.read(MAX_ERROR_LENGTH).decode(errors="replace")
                        said = _LOG_LINES.sub("", said).replace(f"{folder}/", "")
                        raise _compile_failed(_told(status, said.strip()))
                return (folder / _OUTPUT).read_bytes()
        except OSError as error:
            raise ResourceExhausted(f"the compiler of .proto sources cannot run here: {error}") from error

    async def _run(self, folder: Path, arguments: list[str], errors: BinaryIO) -> int:
        """The child's exit status; what it has to say goes to *errors*. It is gone when this ends, however it does."""
        limits = (self._memory_bytes, max(1, round(self._seconds)), OUTPUT_BYTES)
        child = await asyncio.create_subprocess_exec(
            self._python,
            *("-I", str(_CHILD), *map(str, limits)),
            *(f"--descriptor_set_out={_OUTPUT}", "--include_imports", *arguments),
            cwd=folder,
            env={},  # the parent's may hold secrets
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,  # a file, and so within the child's limit; a pipe would have to be held in memory
        )
        try:
            async with asyncio.timeout(self._seconds):
                return await child.wait()
        except TimeoutError:
            raise _compile_failed(f"the compiler was stopped after {self._seconds:g} s") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()


def _supply(folder: Path, sources: Mapping[str, str]) -> bool:
    """Lay the file of options for rules beside sources that import it without having it: its compiled form."""
    if VALIDATION_FILE in sources or not any(VALIDATION_FILE in text for text in sources.values()):
        return False
    supplied = FileDescriptorSet(file=[FileDescriptorProto.FromString(validation_file())])
    (folder / _SUPPLIED).write_bytes(supplied.SerializeToString())
    return True


class _Results:
    """The newest results, bounded by number and by bytes."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._held: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, key: bytes) -> bytes | None:
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def keep(self, key: bytes, result: bytes) -> None:
        self._bytes += len(result) - len(self._held.pop(key, b""))
        self._held[key] = result
        while len(self._held) > self._most or self._bytes > self._most_bytes:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= len(dropped)


def _check_paths(sources: Mapping[str, str]) -> None:
    """Every path must stay inside the folder, be no argument in disguise, and be no other's folder."""
    if len(sources) > MAX_SOURCES:
        raise _bad_path(f"there are {len(sources):,} sources, over the limit of {MAX_SOURCES:,}")
    for path in sources:
        if len(path) > MAX_PATH_LENGTH or not _PATH.fullmatch(path):
            shown = path if len(path) <= 60 else f"{path[:60]}..."
            raise _bad_path(
                f"{shown!r} is not a path of a source: write folder/name.proto, relative, in letters, digits, _ . + -",
                path,
            )
    folders = {str(parent) for path in sources for parent in PurePosixPath(path).parents}
    for path in sources.keys() & folders:
        raise _bad_path(f"{path!r} is both a source and a folder of one", path)


def _bad_path(reason: str, path: str | None = None) -> InputInvalid:
    pointer = "/schema/sources"
    if path is not None:
        pointer += "/" + path.replace("~", "~0").replace("/", "~1")
    return InputInvalid(reason, pointer=pointer)


def _compile_failed(text: str) -> InputInvalid:
    return InputInvalid(f"the sources do not compile: {text}", pointer="/schema/sources", code="compile-failed")


def _told(status: int, said: str) -> str:
    """What to tell whoever wrote the sources about a status other than 0."""
    if status < 0:
        return "the compiler was stopped: they need more memory, time or output than it is given"
    if not said or "MemoryError" in said or "bad_alloc" in said:
        return "the compiler gave up: they need more memory than it is given"
    return said
