"""Bounds on what people may hand to the engine. Each is checked where the value enters, with an error that names it."""

from typing import Final

from schemas import limits

MAX_DOCUMENT_BYTES: Final = 1_048_576
"""Bytes of a definition in canonical JSON, its schema included. A larger schema belongs in fewer, smaller files."""

MAX_DESCRIPTOR_SET_BYTES: Final = 8_388_608
"""Bytes of a FileDescriptorSet, before and after it is brought into its pinned form."""

MAX_SCHEMA_FILES: Final = 2_000
"""Files in one schema, imports included."""

MAX_VALUE_BYTES: Final = 8_388_608
"""UTF-8 bytes of JSON text parsed as an input or an answer. Doors set smaller limits of their own before this one."""

MAX_DEPTH: Final = limits.JSON_DEPTH
"""Nesting of objects and arrays in any JSON that is read or written: definitions, inputs, answers, checkpoints."""

MAX_STEPS: Final = 1_000
MAX_NAME_LENGTH: Final = limits.NAME
"""Code points of workflow and step names: what events and indexes can carry."""

MAX_TYPE_NAME_LENGTH: Final = 500
"""Code points of the full name of a message type, or of a method with its service."""

MAX_RULES: Final = 10_000
"""Mapping rules of one definition, those in CEL included, all steps and the output together."""

MAX_RULE_LENGTH: Final = 4_096
"""Code points of one mapping rule."""

MAX_EXPRESSION_BYTES: Final = 4_096
"""UTF-8 bytes of one expression (CEL). `streams/evaluator/bounds.py` has the bounds on what it may say."""

MAX_FAN_OUT_ITEMS: Final = 1_024
"""Items of one step that fans out."""

MAX_FAN_OUT_CONCURRENCY: Final = 64
"""Calls of one step that fans out, in flight at once."""

MAX_TARGET_LENGTH: Final = 255
MAX_DEADLINE_MS: Final = limits.INT32_MAX
"""Milliseconds of a deadline: about 24 days."""

MAX_WAIT_MS: Final = 366 * 24 * 3_600 * 1_000
"""Milliseconds that a run may wait, for a time or an answer, and that it may take all in all: a year."""

MAX_ATTEMPTS: Final = 1_000
"""Tries of one step."""

MAX_DELAYS: Final = 100
"""Pauses between tries that a step lists; the last one is repeated."""

MAX_KEY_BYTES: Final = 1_024
"""UTF-8 bytes of the key of a record that a step sends."""

MAX_FINDINGS: Final = 200
"""Findings listed for one definition; one more line says that there are others."""
