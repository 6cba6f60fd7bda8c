"""Findings collected while a definition is read and verified: all of them, in step order, up to a bound."""

from schemas.errors import Finding
from streams.workflow.json_values import pointer_to
from streams.workflow.limits import MAX_FINDINGS


class Findings:
    """Collects findings. `listed` puts them in order: the workflow's own, then each step's, then the output's."""

    def __init__(self) -> None:
        self._found: list[tuple[float, Finding]] = []
        self._more = False

    @property
    def full(self) -> bool:
        """Whether another finding would not be listed: there is no use in looking for more."""
        return len(self._found) >= MAX_FINDINGS

    def add(self, error: str, *path: str | int, kind: str = "workflow", step: str = "") -> None:
        """Note one fault at the place in the document that *path* leads to."""
        if self.full:
            self._more = True
            return
        self._found.append((_rank(path), Finding(step, kind, error, pointer_to(path))))

    def add_at(self, pointer: str, error: str) -> None:
        """Note one fault of the workflow itself at a ready-made JSON pointer."""
        self._found.append((-1, Finding("", "workflow", error, pointer)))

    def listed(self) -> list[Finding]:
        """All findings in order; empty when the definition is sound."""
        found = [finding for _, finding in sorted(self._found, key=lambda ranked: ranked[0])]
        if self._more:
            found.append(Finding("", "workflow", f"there are more findings than these {MAX_FINDINGS}"))
        return found


def _rank(path: tuple[str | int, ...]) -> float:
    if len(path) > 1 and path[0] == "steps":
        return float(path[1])
    return float("inf") if path and path[0] == "output" else -1.0
