"""`workflow-runs schemas`: the contract's schema texts at the registry."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

import click

from schemas.errors import UnknownSchema
from schemas.registered import schema_text
from schemas.topics import Topics, load_topics
from streams.cli.exits import Exit
from streams.cli.output import print_json, print_problem
from streams.kafka.registry import SchemaRegistry
from streams.settings import load_settings


@click.group()
def schemas() -> None:
    """Register the contract's schemas, or check that they are registered. Workers never register anything."""


@schemas.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def register(as_json: bool) -> None:
    """Register this version's schema under the subject of each topic. Doing it again changes nothing."""
    ids = _for_each_subject(lambda registry, subject: registry.register(subject, schema_text()))
    _print(ids, as_json)


@schemas.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(as_json: bool) -> None:
    """Say under which id each subject has this version's schema; exits 1 when one lacks it."""
    try:
        ids = _for_each_subject(lambda registry, subject: registry.id_of(subject, schema_text()))
    except UnknownSchema as error:
        print_problem(f"{error}: run `workflow-runs schemas register`")
        sys.exit(int(Exit.REFUSED))
    _print(ids, as_json)


def subjects(topics: Topics) -> list[str]:
    """Return the subjects of all topics that have one, sorted."""
    return sorted({topic.subject for topic in topics.all() if topic.subject})


def _for_each_subject(work: Callable[[SchemaRegistry, str], Awaitable[int]]) -> dict[str, int]:
    settings = load_settings()
    wanted = subjects(load_topics(settings.topics_file))

    async def run() -> dict[str, int]:
        registry = SchemaRegistry.from_settings(settings)
        try:
            return {subject: await work(registry, subject) for subject in wanted}
        finally:
            await registry.close()

    return asyncio.run(run())


def _print(ids: dict[str, int], as_json: bool) -> None:
    if as_json:
        print_json(ids)
        return
    for subject, schema_id in ids.items():
        click.echo(f"{subject}: id {schema_id}")
