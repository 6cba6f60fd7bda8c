"""One line a record, for people or for machines, with the job and the step it is about."""

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_CONTEXT: Final[ContextVar[dict[str, object]]] = ContextVar("log_context", default={})  # noqa: B039  # never mutated
_FIELDS: Final = ("job_id", "step", "worker_id")

# Each of these repeats one line per broker and second while a broker is away.
_CHATTY: Final = ("aiokafka", "faust.transport", "mode")


@contextmanager
def logged_as(**fields: object) -> Iterator[None]:
    """Give every record logged inside this block, and in tasks begun in it, the *fields* (`job_id`, `step`)."""
    token = _CONTEXT.set({**_CONTEXT.get(), **{name: value for name, value in fields.items() if value is not None}})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """What a record is about: the fields of its context, then its own `extra`."""
    fields = dict(_CONTEXT.get())
    for name in _FIELDS:
        if (value := getattr(record, name, None)) is not None:
            fields[name] = value
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (RFC 3339, UTC), `level`, `logger`, `message`, `error`, and what it is about."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: str(value) for name, value in fields_of(record).items()})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """`time level logger message key=value ...`, then the traceback when there is one."""

    def format(self, record: logging.LogRecord) -> str:
        clock = f"{time.strftime('%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03d}"
        about = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        line = f"{clock} {record.levelname:<7} {record.name}: {record.getMessage()}{about}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class RepeatFilter(logging.Filter):
    """Lets the same message of the same logger through once in *seconds*, so that an outage does not fill a disk."""

    def __init__(self, seconds: float = 30) -> None:
        super().__init__()
        self._seconds = seconds
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(_CHATTY):
            return True
        key = (record.name, str(record.msg)[:200])
        now = time.monotonic()
        if now - self._last.get(key, -self._seconds) < self._seconds:
            return False
        if len(self._last) > 1_000:
            self._last.clear()
        self._last[key] = now
        return True


def set_up_logging(log_format: str, level: str) -> None:
    """Send every record of this process to standard error in *log_format* (`text` or `json`)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
