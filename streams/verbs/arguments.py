"""Reading the JSON object that a verb is called with: every refusal names the field and the way out."""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from schemas.errors import ContractError, InputInvalid
from schemas.ids import parse_job_id

LIST_DEFAULT: Final = 50
LIST_MOST: Final = 500


class Arguments:
    """The fields of one call. A field that is null counts as absent; an unknown one is refused.

    Raises:
        InputInvalid: from the constructor and every reader, with the field's JSON pointer.
    """

    def __init__(self, given: object, allowed: Iterable[str]) -> None:
        if not isinstance(given, Mapping):
            raise InputInvalid("the call must be a JSON object")
        names = sorted(allowed)
        for name in given:
            if name not in names:
                raise InputInvalid(f"unknown field {name!r}; this verb takes {', '.join(names)}", pointer=f"/{name}")
        self._given: Mapping[str, object] = given

    def has(self, name: str) -> bool:
        return self._given.get(name) is not None

    def text(self, name: str, *, most: int = 200) -> str | None:
        """Return a string of at most *most* code points, trimmed; None when absent or blank."""
        value = self._given.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise InputInvalid(f"{name} must be a string", pointer=f"/{name}")
        value = value.strip()
        if len(value) > most:
            raise InputInvalid(f"{name} has {len(value)} characters, {most} are allowed", pointer=f"/{name}")
        if "\0" in value:
            raise InputInvalid(f"{name} must not contain U+0000", pointer=f"/{name}")
        return value or None

    def required_text(self, name: str, *, most: int = 200) -> str:
        value = self.text(name, most=most)
        if value is None:
            raise InputInvalid(f"{name} is required: a non-blank string", pointer=f"/{name}")
        return value

    def value(self, name: str) -> object:
        """Return a field of any JSON type; absent and null are refused."""
        if not self.has(name):
            raise InputInvalid(f"{name} is required", pointer=f"/{name}")
        return self._given[name]

    def object(self, name: str) -> Mapping[str, object] | None:
        value = self._given.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise InputInvalid(f"{name} must be a JSON object", pointer=f"/{name}")
        return value

    def whole_number(self, name: str) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputInvalid(f"{name} must be a whole number, 0 or greater", pointer=f"/{name}")
        return value

    def limit(self) -> int:
        """Return how many entries a list answers: absent or 0 means 50, above 500 means 500."""
        return min(self.whole_number("limit") or LIST_DEFAULT, LIST_MOST)

    def job_id(self, name: str = "jobId") -> UUID:
        return _job_id(self.required_text(name), name)


def _job_id(text: str, name: str) -> UUID:
    try:
        return parse_job_id(text)
    except ContractError as error:
        raise InputInvalid(f"{name}: {error}", pointer=f"/{name}") from error
