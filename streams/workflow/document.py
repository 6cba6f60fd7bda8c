"""One JSON object of a definition, read strictly: what it must hold, what it may hold, and nothing else."""

from collections.abc import Mapping

from streams.workflow.findings import Findings
from streams.workflow.json_values import shown
from streams.workflow.limits import MAX_DEADLINE_MS

Path = tuple[str | int, ...]


class ObjectReader:
    """Reads members by name and type. A fault becomes a finding, and the member counts as absent."""

    def __init__(
        self,
        members: Mapping[str, object],
        path: Path,
        findings: Findings,
        *,
        step: str = "",
        kind: str = "workflow",
    ) -> None:
        """*kind* is that of the findings noted here, unless another is given with one."""
        self._members = members
        self.path = path
        self._findings = findings
        self._step = step
        self._kind = kind
        self._known: set[str] = set()

    def fault(self, error: str, *inner: str | int, kind: str | None = None) -> None:
        """Note a fault at a member, or at the object itself."""
        self._findings.add(error, *self.path, *inner, kind=kind or self._kind, step=self._step)

    def take(self, key: str) -> object:
        """The member as it stands; None when absent."""
        self._known.add(key)
        return self._members.get(key)

    def has(self, key: str) -> bool:
        return key in self._members

    def text(self, key: str, *, required: bool = False, longest: int) -> str:
        """A text member, not blank, of at most *longest* code points; empty when absent."""
        value = self.take(key)
        if key not in self._members:
            if required:
                self.fault(f"{key} is missing")
        elif not isinstance(value, str):
            self.fault(f"{key} must be text, not {shown(value)}", key)
        elif not value.strip():
            self.fault(f"{key} must not be blank", key)
        elif len(value) > longest:
            self.fault(f"{key} has {len(value):,} characters, over the limit of {longest:,}", key)
        else:
            return value
        return ""

    def expression(self, key: str, *, kind: str | None = None) -> str:
        """A text member that holds an expression; empty when absent or blank. Its length is checked with the rest."""
        value = self.take(key)
        if key in self._members and not isinstance(value, str):
            self.fault(f"{key} must be text, not {shown(value)}", key, kind=kind)
        return value if isinstance(value, str) and value.strip() else ""

    def flag(self, key: str) -> bool:
        """A boolean member; false when absent."""
        value = self.take(key)
        if key in self._members and not isinstance(value, bool):
            self.fault(f"{key} must be true or false, not {shown(value)}", key)
        return value is True

    def milliseconds(self, key: str, *, lowest: int | None = None, most: int = MAX_DEADLINE_MS) -> int:
        """An integer member, from *lowest* to *most*; 0 when absent."""
        value = self.take(key)
        if key not in self._members:
            return 0
        if not isinstance(value, int) or isinstance(value, bool):
            self.fault(f"{key} must be an integer of milliseconds, not {shown(value)}", key)
        elif value > most or (lowest is not None and value < lowest):
            least = f"from {lowest} " if lowest is not None else ""
            self.fault(f"{key} must be {least}up to {most:,}, not {shown(value)}", key)
        else:
            return value
        return 0

    def inner(self, key: str, members: Mapping[str, object]) -> "ObjectReader":
        """A reader of the object that stands at *key*."""
        return ObjectReader(members, (*self.path, key), self._findings, step=self._step, kind=self._kind)

    def texts(self, key: str) -> tuple[str, ...]:
        """A member that is an array of texts; empty when absent or when an item is something else."""
        value = self.take(key)
        if key not in self._members:
            return ()
        if not isinstance(value, list):
            self.fault(f"{key} must be an array, not {shown(value)}", key)
            return ()
        others = [index for index, item in enumerate(value) if not isinstance(item, str)]
        for index in others:
            self.fault(f"{key} must hold texts, not {shown(value[index])}", key, index)
        return () if others else tuple(value)

    def refuse(self, key: str, why: str, *, kind: str) -> None:
        """Refuse a member that other engines of this language have: *why*, and the way out."""
        if key in self._members:
            self._known.add(key)
            self.fault(f"{key} is not supported: {why}", key, kind=kind)

    def refuse_unknown(self) -> None:
        """Refuse every member that was not asked for. Call it last."""
        for key in self._members:
            if key not in self._known:
                self.fault(f"{shown(key)} is no key here (known: {', '.join(sorted(self._known))})", key)
