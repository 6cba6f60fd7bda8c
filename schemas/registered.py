"""The schema text registered at the Schema Registry, one per version of the contract.

An event is stamped with its contract version when it is written, and is published with the id of that version's text,
also by a later release: that keeps redeliveries identical. So a published text never changes. To change the contract,
edit the .proto, generate, and add the next text here; a test holds every text to its hash and the newest to the .proto.

The texts have no comments: clients that look a schema up by their compiled descriptor send none either. They need no
references, since every registry knows google/protobuf/timestamp.proto.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from schemas.errors import ContractError

CONTRACT_VERSION: Final = 1
"""The version that new events are written in."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """What the registry is given for each subject: all four messages stand in one text."""

    contract_version: int
    schema_type: str
    text: str


@cache
def schema_text(contract_version: int = CONTRACT_VERSION) -> SchemaText:
    """Return the Protobuf schema text of a contract version.

    Raises:
        ContractError: code `contract-version`; this release does not know the version, a newer one does.
    """
    if not 1 <= contract_version <= CONTRACT_VERSION:
        raise ContractError(
            f"contract version {contract_version} is unknown here, 1 to {CONTRACT_VERSION} are known",
            code="contract-version",
        )
    source = files("schemas").joinpath("registered", f"workflow_runs.{contract_version}.proto")
    return SchemaText(contract_version, "PROTOBUF", source.read_text(encoding="utf-8"))
