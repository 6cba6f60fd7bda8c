"""Names and targets as people write them in steps."""

import ipaddress
import re
from typing import Final

from streams.workflow.json_values import shown

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TARGET: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]*|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(:(?P<port>[0-9]{1,5}))?")

HANDLER_TARGET: Final = "local"
"""What a step names as its target when a handler in Python serves its method."""

JOB_METHOD: Final = "workflow_runs.job.v1.Job/Run"
"""The method of every job type: plain JSON in, plain JSON out."""

_JOB_TARGET: Final = re.compile(r"job:[A-Za-z_][A-Za-z0-9_.-]{0,199}")

# Names the scope gives away itself, or that error texts and events use for something else.
_TAKEN: Final = frozenset({"input", "target", "output"})

# Reserved words and type names of CEL: a step of that name could not be named in a gate.
_CEL_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        as break const continue else false for function if import in let loop namespace null package return true var
        void while bool bytes double dyn int list map null_type optional_type string type uint
        """,
    )
)


def fault_in_step_name(name: str) -> str | None:
    """Why a step cannot have that name, or None."""
    if not _IDENTIFIER.fullmatch(name):
        return f"the step name {shown(name)} is no identifier: letters, digits and _, not starting with a digit"
    if name in _TAKEN:
        return f"the step name {name} is taken by the engine"
    if name in _CEL_WORDS:
        return f"the step name {name} is a reserved word of expressions (CEL)"
    return None


def fault_in_target(target: str) -> str | None:
    """Why that is no target, or None. A target is a name from the settings, or `host:port`."""
    match = _TARGET.fullmatch(target)
    if match is None:
        return f"{shown(target)} is no target: write a name from the settings, or host:port without a scheme or path"
    if match["port"] is not None and not 1 <= int(match["port"]) <= 65_535:
        return f"the port of {shown(target)} is not in 1 to 65535"
    if match["ipv6"] is not None and (match["port"] is None or not _is_ipv6(match["ipv6"])):
        return f"{shown(target)} is no target: an IPv6 address is written [address]:port"
    return None


def handler_target(method: str) -> str:
    """What a step with the target `local` waits for: a worker with a handler of *method*, `package.Service/Method`."""
    return f"{HANDLER_TARGET}:{method}"


def job_target(job_type: str) -> str:
    """The target of a job type: a worker with the function of that name."""
    return f"job:{job_type}"


def is_job_target(target: str) -> bool:
    """Whether *target* is that of a job type."""
    return _JOB_TARGET.fullmatch(target) is not None


def is_served_in_process(target: str) -> bool:
    """Whether *target*, as a step names it, is a handler's or a job type's: nothing leaves the worker."""
    return target == HANDLER_TARGET or is_job_target(target)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
