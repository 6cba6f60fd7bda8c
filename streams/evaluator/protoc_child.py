"""The child process that compiles .proto sources: sets limits on itself, then becomes the compiler.

Run as a file, so that it imports nothing of this distribution:

    python -I protoc_child.py <memory bytes> <cpu seconds> <file bytes> <arguments of protoc>
"""

import resource
import sys
from importlib import resources

from grpc_tools import protoc


def main(arguments: list[str]) -> int:
    memory_bytes, cpu_seconds, file_bytes = (int(text) for text in arguments[:3])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    well_known = resources.files("grpc_tools") / "_proto"
    status: int = protoc.main(["protoc", "--proto_path=.", f"--proto_path={well_known}", *arguments[3:]])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
