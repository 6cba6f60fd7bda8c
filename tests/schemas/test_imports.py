import subprocess
import sys
from pathlib import Path

import schemas

PROGRAM = """
import importlib.metadata, pkgutil, sys
before = set(sys.modules)
import schemas
for module in pkgutil.walk_packages(schemas.__path__, "schemas."):
    importlib.import_module(module.name)
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
installed = importlib.metadata.packages_distributions()
print("\\n".join(name for name in loaded if name in installed and not name.startswith("_")))
"""


def test_the_contracts_load_nothing_but_protobuf_and_yaml() -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(schemas.__file__).parent.parent,
    )
    assert set(result.stdout.split()) == {"google", "schemas", "yaml"}
