"""Labels: a requester's own key-value pairs on a run. They travel as JSON text, since sinks do not take maps."""

from collections.abc import Iterator, Mapping

from schemas import limits, strict_json
from schemas.errors import ContractError
from schemas.text import unstorable


def labels_of(value: object) -> Mapping[str, str] | None:
    """Check labels that are an object or the JSON text of one; None when there are none, as with `{}` and empty text.

    Raises:
        ContractError: code `labels`; the message says what is wrong with them.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        value = _read(value)
    if not isinstance(value, dict):
        raise ContractError(f"labels: is {strict_json.kind_of(value)}, not an object", code="labels")
    if problems := list(label_problems(value)):
        raise ContractError("; ".join(problems), code="labels")
    return value or None


def _read(json_text: str) -> object:
    try:
        return strict_json.parse(json_text)
    except ContractError as error:
        raise ContractError(f"labels: {error}", code="labels") from None


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
