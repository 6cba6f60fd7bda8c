"""Labels: a requester's own key-value pairs on a run. They travel as JSON text, since sinks do not take maps."""

from collections.abc import Iterator, Mapping
from typing import cast

from schemas import limits, strict_json
from schemas.errors import ContractError
from schemas.text import unstorable


def read_labels(json_text: str) -> Mapping[str, str] | None:
    """Read labels from JSON text; None when there are none, so that `{}` and absent labels are the same.

    Raises:
        ContractError: code `labels`; the message says what is wrong with them.
    """
    try:
        found = strict_json.parse_object(json_text)
    except ContractError as error:
        raise ContractError(f"labels: {error}", code="labels") from None
    if problems := list(label_problems(found)):
        raise ContractError("; ".join(problems), code="labels")
    return cast(Mapping[str, str], found) or None


def label_problems(labels: Mapping[str, object]) -> Iterator[str]:
    """Say, one sentence each, what keeps *labels* from being stored; nothing when they are fine."""
    if len(labels) > limits.LABELS:
        yield f"labels: {len(labels)} of them, at most {limits.LABELS} are allowed"
        return
    for key, value in labels.items():
        if not 1 <= len(key) <= limits.LABEL_KEY or unstorable(key):
            yield f"labels: the key {key[:80]!r} is not 1 to {limits.LABEL_KEY} storable characters"
        elif not isinstance(value, str):
            yield f"labels: {key!r} is {strict_json.kind_of(value)}, not a text"
        elif len(value) > limits.LABEL_VALUE or unstorable(value):
            yield f"labels: the value of {key!r} is not at most {limits.LABEL_VALUE} storable characters"
