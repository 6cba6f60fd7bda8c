"""Compiles .proto files, for the parts of the development stack that need descriptors."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

_COMPILE_SECONDS: Final = 20.0


class CompileFailed(ValueError):
    """The sources are not valid Protobuf; the message is the compiler's."""


def compile_protos(
    sources: Mapping[str, str], imported: Iterable[FileDescriptorProto] = ()
) -> list[FileDescriptorProto]:
    """Compile sources by path; they may import each other, `imported` ones and Google's well-known files.

    Returns:
        One descriptor for each source, each after those it needs.

    Raises:
        CompileFailed: a source is invalid, or imports what is not there.
    """
    with tempfile.TemporaryDirectory(prefix="workflow-runs-protoc-") as name:
        folder = Path(name)
        for path, text in sources.items():
            file = folder / "sources" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (folder / "imported").write_bytes(FileDescriptorSet(file=imported).SerializeToString())
        command = [sys.executable, "-m", "grpc_tools.protoc", "-Isources", "--descriptor_set_in=imported", "-oout"]
        done = subprocess.run(
            [*command, *sources], cwd=folder, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False
        )
        if done.returncode != 0:
            raise CompileFailed(done.stderr.strip())
        return list(FileDescriptorSet.FromString((folder / "out").read_bytes()).file)
