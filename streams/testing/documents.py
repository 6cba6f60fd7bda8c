"""Definitions as their authors keep them: files of JSON or YAML."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from schemas import strict_json
from schemas.errors import ContractError


def read_document(path: Path) -> object:
    """The plain values of a JSON file, or of a YAML file by its name.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON or YAML; the sentence names the file, and the line where that is known.
    """
    text = path.read_text("utf-8")
    try:
        if path.suffix in (".yaml", ".yml"):
            return yaml.load(text, Loader=_Loader)
        return strict_json.parse(text)
    except (ContractError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from None


class _Loader(yaml.SafeLoader):
    """Refuses what would be read otherwise than it looks: a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key, (place, _) in zip(keys, node.value, strict=True):
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    "in a mapping", node.start_mark, f"the key {key!r} stands twice", place.start_mark
                )
        return super().construct_mapping(node, deep)
