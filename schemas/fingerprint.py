"""Whether two requests under one id are the same request.

A run keeps the fingerprint of the request as it was sent, and a later request under its id is compared with that and
nothing else: an honest redelivery stays a no-op after the workflow was edited. Fingerprints are stored for as long as
runs are remembered, so the form hashed here must never change.
"""

import hashlib
from collections.abc import Mapping

from schemas import strict_json


def fingerprint(
    *,
    tenant_id: str,
    workflow_name: str | None,
    definition_hash: bytes | None,
    business_key: str | None,
    labels: Mapping[str, str] | None,
    input: str,
) -> bytes:
    """Return the SHA-256 of what a request means, 32 bytes.

    The order of keys and white space in *input* and *labels* count for nothing, and neither does the format the request
    came in. All else counts: `7` and `"7"` differ, and so do a default that is stated and one that is left out. Numbers
    are compared as `strict_json.canonical` writes them: integers by all their digits, others as doubles, so that 1.0
    and 1 are the same. No labels and empty labels are the same.

    Args:
        tenant_id: The tenant the request belongs to.
        workflow_name: Name of the stored workflow; None for a request that brings its definition along.
        definition_hash: Hash of the definition the request brings along; None for a request by name.
        business_key: None when the request has none.
        labels: None when the request has none.
        input: JSON text, of an object where the request is usable.

    Raises:
        ContractError: *input* is not JSON that `strict_json.parse` takes; the code is of that module.
        ValueError: both or neither of *workflow_name* and *definition_hash* are given.
    """
    if (workflow_name is None) == (definition_hash is None):
        raise ValueError("a request is by name or brings its definition: give exactly one of the two")
    meaning = strict_json.canonical(
        {
            "business_key": business_key,
            "definition": definition_hash.hex() if definition_hash is not None else None,
            "labels": labels or None,
            "tenant": tenant_id,
            "workflow": workflow_name,
        }
    )
    written = f"workflow-runs request 1\n{meaning}\n{strict_json.canonical(strict_json.parse(input))}"
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).digest()
