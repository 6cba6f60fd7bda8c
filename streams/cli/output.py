"""Printing: for people on a terminal, or as JSON for machines."""

import json
from collections.abc import Mapping, Sequence

import click

Rows = Sequence[Mapping[str, object]]


def print_json(value: object) -> None:
    """Print one JSON document, indented on a terminal and on one line elsewhere."""
    indent = 2 if click.get_text_stream("stdout").isatty() else None
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent))


def print_table(rows: Rows, columns: Sequence[str]) -> None:
    """Print *rows* as aligned columns under their names; a missing value is a dash."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    for line in [list(columns), *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one field a line; a structured value is indented JSON."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        text = _cell(value)
        if isinstance(value, dict | list) and len(text) > 80:
            text = json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n" + " " * (width + 2))
        click.echo(f"{name.ljust(width)}  {text}")


def print_problem(message: str) -> None:
    """Print why a command failed, to standard error."""
    click.echo(f"error: {message}", err=True)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else str(value)
