"""How much of everything a contract carries. Lengths count Unicode code points unless the name says bytes."""

from typing import Final

NAME: Final = 200
"""Workflow names, step names, tenants and business keys."""

VERDICT: Final = 500
ERROR: Final = 4000
DETAIL_BYTES: Final = 8 * 1024

INPUT_BYTES: Final = 1024 * 1024
JSON_DEPTH: Final = 64
"""Objects and arrays inside one another, the outermost counted."""

LABELS: Final = 32
LABEL_KEY: Final = 63
LABEL_VALUE: Final = 255

HEADER_BYTES: Final = 1024
"""Each text that we put into a dead letter's headers."""

DEAD_LETTER_ROOM_BYTES: Final = 64 * 1024
"""What a dead-letter topic takes beyond its source, so that a record of any size still fits with its headers."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
UINT32_MAX: Final = 2**32 - 1
