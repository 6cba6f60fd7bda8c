# What is used of cel-expr-python, which says nothing of its types to a checker.
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

class Activation: ...
class CelExtensionBase: ...

class Type:
    BOOL: ClassVar[Type]
    BYTES: ClassVar[Type]
    DOUBLE: ClassVar[Type]
    DURATION: ClassVar[Type]
    DYN: ClassVar[Type]
    ERROR: ClassVar[Type]
    INT: ClassVar[Type]
    NULL: ClassVar[Type]
    STRING: ClassVar[Type]
    TIMESTAMP: ClassVar[Type]
    UINT: ClassVar[Type]
    def __init__(self, signature: str) -> None: ...
    def is_message(self) -> bool: ...
    def name(self) -> str: ...

class Value:
    def type(self) -> Type: ...
    def value(self) -> Any: ...

class Expression:
    def eval(self, activation: Activation | None = ...) -> Value: ...
    def return_type(self) -> Type: ...
    def serialize(self) -> bytes: ...

class Overload:
    def __init__(
        self,
        id: str,
        return_type: Type = ...,
        parameters: Sequence[Type] = ...,
        is_member: bool = ...,
        impl: Callable[..., Any] = ...,
    ) -> None: ...

class FunctionDecl:
    def __init__(self, name: str, overloads: Sequence[Overload]) -> None: ...

class Env:
    def Activation(self, data: Mapping[str, Message] = ...) -> Activation: ...
    def compile(self, expression: str) -> Expression: ...
    def deserialize(self, serialized: bytes) -> Expression: ...

def NewEnv(
    descriptor_pool: DescriptorPool,
    variables: Mapping[str, Type] = ...,
    extensions: Sequence[CelExtensionBase] = ...,
    functions: Sequence[FunctionDecl] = ...,
) -> Env: ...
