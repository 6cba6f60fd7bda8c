"""The operations on expressions: checking one, and evaluating one.

The engine is Google's C++ one. It holds the interpreter's lock, cannot be interrupted, and knows no limit but those on
the size of an expression; so bounds are checked here before a program is kept (`bounds`), and whoever calls bounds the
time and the memory.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from streams.evaluator.bounds import NESTED_TOO_DEEPLY, NO_ORDER, TOO_MANY, bounded
from streams.evaluator.cel_plain import ValueHasNoForm, plain
from streams.evaluator.cel_types import without_lists_of_enums
from streams.evaluator.frames import Header
from streams.evaluator.operations import LoadedSchema, Operation, Refused

PROGRAMS_KEPT: Final = 4_096
"""Programs of one schema; the oldest make room."""

_CHECKERS_KEPT: Final = 32
_NOT_MET: Final[Header] = {"met": False}

_Variables = tuple[tuple[str, str], ...]
"""Names with full message names or DYN, sorted."""


class _Programs:
    """The expressions of one schema, compiled and bounded.

    An environment with variables is large, and needed for checking only; programs run in one that has none.
    """

    def __init__(self, schema: LoadedSchema) -> None:
        self._pool_of_types = without_lists_of_enums(schema.pool, schema.file_names)
        self._checkers: OrderedDict[_Variables, cel.Env] = OrderedDict()
        self._programs: OrderedDict[tuple[_Variables, str], cel.Expression] = OrderedDict()
        self._runtime = _environment(schema.pool, ())

    def check(self, source: str, variables: _Variables) -> tuple[str, frozenset[str]]:
        """The static type, and the variables that it reads. Raises Refused."""
        program, reads = self._compiled(source, variables)
        _keep(self._programs, (tuple(item for item in variables if item[0] in reads), source), program, PROGRAMS_KEPT)
        try:
            name = program.return_type().name()
        except RuntimeError as error:
            raise Refused(_one_line(str(error))) from None
        # What an Any holds is known with the data only; the engine calls that an error.
        return re.sub(r"\bERROR\b", "DYN", name), reads

    def activation(self, messages: Mapping[str, Message]) -> cel.Activation:
        """Variables with their values, which any number of programs may share."""
        return self._runtime.Activation(messages)

    def program(self, source: str, variables: _Variables) -> cel.Expression:
        """The program of an expression over variables of these types. Raises Refused."""
        key = (variables, source)
        program = self._programs.get(key)
        if program is None:
            program, _ = self._compiled(source, variables)
            _keep(self._programs, key, program, PROGRAMS_KEPT)
        else:
            self._programs.move_to_end(key)
        return program

    def _compiled(self, source: str, variables: _Variables) -> tuple[cel.Expression, frozenset[str]]:
        try:
            checker = self._checkers.get(variables)
            if checker is None:
                checker = _environment(self._pool_of_types, variables)
                _keep(self._checkers, variables, checker, _CHECKERS_KEPT)
            rewritten, reads = bounded(checker.compile(source).serialize(), frozenset(name for name, _ in variables))
            return self._runtime.deserialize(rewritten), reads
        except TypeError:  # the text of which is about the library's own functions
            raise Refused("it holds half a surrogate pair") from None
        except (RuntimeError, ValueError) as error:
            raise Refused(_one_line(str(error))) from None


def check(schema: LoadedSchema, request: Header, blobs: Sequence[bytes]) -> tuple[Header, Sequence[bytes]]:
    """Compile `source` over `variables`, full message names or DYN by name: its `type`, and what it `reads`."""
    name, reads = schema.part(_Programs).check(request["source"], _sorted(request["variables"]))
    return {"type": name, "reads": sorted(reads)}, ()


def evaluate(schema: LoadedSchema, request: Header, blobs: Sequence[bytes]) -> tuple[Header, Sequence[bytes]]:
    """Evaluate `source` over `variables`, whose messages are *blobs* in the order of their names.

    With `filter`, whose value must be a bool: `met` tells it, and `value` is there only when it is true.
    """
    programs = schema.part(_Programs)
    variables = _sorted(request["variables"])
    activation = programs.activation(
        {name: schema.read(full_name, data) for (name, full_name), data in zip(variables, blobs, strict=True)}
    )
    if (filter := request.get("filter")) is not None:
        met = _value(programs.program(filter, variables), activation, "filter: ")
        if not isinstance(met, bool):
            raise Refused("filter: it gives no bool")
        if not met:
            return _NOT_MET, ()
    source = request.get("source")
    value = _value(programs.program(source, variables), activation, "") if source is not None else True
    return {"met": True, "value": value}, ()


OPERATIONS: Final[Mapping[str, Operation]] = {"cel.check": check, "cel.evaluate": evaluate}


def _value(program: cel.Expression, activation: cel.Activation, where: str) -> Any:
    try:
        value = program.eval(activation)
        if value.type() == cel.Type.ERROR:
            raise Refused(f"{where}{_one_line(str(value.value()))}")
        return plain(value)
    except (RuntimeError, TypeError, ValueError, ValueHasNoForm) as error:
        raise Refused(f"{where}{_one_line(str(error))}") from None


def _environment(pool: DescriptorPool, variables: _Variables) -> cel.Env:
    return cel.NewEnv(
        pool,
        variables={name: _type(full_name) for name, full_name in variables},
        extensions=[ext_strings.ExtStrings()],
        functions=[_too_many()],
    )


def _type(full_name: str) -> cel.Type:
    return cel.Type.DYN if full_name == "DYN" else cel.Type(full_name)


def _sorted(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(variables.items()))


def _too_many() -> cel.FunctionDecl:
    def refuse() -> None:
        raise ValueError(TOO_MANY.text)

    overload = cel.Overload(TOO_MANY.overload, return_type=cel.Type.DYN, parameters=[], is_member=False, impl=refuse)
    return cel.FunctionDecl(TOO_MANY.function, [overload])


def _keep(cache: OrderedDict[Any, Any], key: object, value: object, most: int) -> None:
    cache[key] = value
    if len(cache) > most:
        cache.popitem(last=False)


def _one_line(text: str) -> str:
    """The engine's text without the picture of the source that it draws below."""
    if "recursion" in text:
        return NESTED_TOO_DEEPLY
    if "_+_(list, map)" in text:
        return f"a map cannot be added to a list, or gone over by map or filter: {NO_ORDER}"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("|")]
    said = "; ".join(line.removeprefix("INVALID_ARGUMENT: ").removeprefix("ERROR: <input>:") for line in lines)
    said = said.replace(" (in container '')", "").removesuffix(" [INVALID_ARGUMENT]")
    return said[:1_000] or "it failed without a word"
