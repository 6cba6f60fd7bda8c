"""The file of options in which schemas declare rules: buf/validate/validate.proto, as the library of rules ships it."""

from functools import cache
from typing import Final

VALIDATION_FILE: Final = "buf/validate/validate.proto"

RULES_NUMBER: Final = 1159
"""The number of the option with rules, in the options of fields, oneofs and messages alike."""


@cache
def validation_file() -> bytes:
    """The serialized FileDescriptorProto. The first call loads the library, which takes a tenth of a second."""
    from protovalidate import ViolationPb

    return ViolationPb.desc().file.proto.to_binary()
