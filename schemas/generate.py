"""Generate `schemas/gen` from the .proto files; needs the dev extra. Run it as `python -m schemas.generate`.

The compiler writes imports that start at the folder it is told, so no contract file imports another one of ours:
that keeps the generated modules importable where they stand, under `schemas.gen`, and no top-level name is taken.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

SCHEMAS: Final = Path(__file__).parent
PROTO: Final = SCHEMAS / "proto"
GENERATED: Final = SCHEMAS / "gen"


def generate(into: Path) -> None:
    """Compile every contract into *into*: modules, their types, and the packages they live in.

    Files already there are overwritten; nothing is removed. Raises CalledProcessError when the compiler refuses a
    file; its text is on stderr.
    """
    sources = sorted(PROTO.rglob("*.proto"))
    into.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--python_out={into}", f"--pyi_out={into}"]
    subprocess.run([*command, *map(str, sources)], check=True)
    for module in into.rglob("*_pb2.py"):
        for package in module.relative_to(into).parents:
            (into / package / "__init__.py").touch()


if __name__ == "__main__":
    generate(GENERATED)
