"""`workflow-runs schemas`: the contract's schemas at the registry, and those of others as files for definitions."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import click

from schemas.errors import InputInvalid, UnknownSchema
from schemas.registered import schema_text
from schemas.topics import Topics, load_topics
from streams.cli.definitions import build_fetcher
from streams.cli.exits import Exit
from streams.cli.output import print_json, print_problem
from streams.evaluator.protoc import ProtocChild
from streams.kafka.registry import SchemaRegistry
from streams.settings import load_settings
from streams.sources.reflection import reflected
from streams.sources.subjects import subject_sources

_OUT: Final = click.Path(dir_okay=False, path_type=Path)


@click.group()
def schemas() -> None:
    """Register the contract's schemas or check that they are registered; fetch those of services and subjects.

    Workers never register anything.
    """


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


@schemas.command()
@click.argument("target")
@click.option("--service", "services", multiple=True, help="Only this service; may be given more than once.")
@click.option("--tls", is_flag=True, help="Call a host:port with TLS; a target of TARGETS_FILE says so itself.")
@click.option("--out", "-o", type=_OUT, required=True, help="The descriptor set to write (schema.binpb, say).")
def reflect(target: str, services: tuple[str, ...], tls: bool, out: Path) -> None:
    """Write the schema of a running service, asked by gRPC server reflection, as a descriptor set.

    TARGET is a name of TARGETS_FILE or host:port. A definition names the file as descriptorSetFile; put into TYPES_DIR,
    its types can be named by every definition.
    """
    fetcher = build_fetcher(load_settings())
    data = asyncio.run(reflected(fetcher.target(target), tls=tls, services=services))
    _write(out, data)


@schemas.command()
@click.argument("subject")
@click.option("--version", type=click.IntRange(min=1), help="By default the newest.")
@click.option("--out", "-o", type=_OUT, required=True, help="The descriptor set to write (schema.binpb, say).")
def fetch(subject: str, version: int | None, out: Path) -> None:
    """Write the Protobuf schema of a SUBJECT of the registry, with all that it refers to, as a descriptor set."""
    settings = load_settings()

    async def run() -> bytes:
        registry = SchemaRegistry.from_settings(settings)
        try:
            found = await subject_sources(registry, subject, version)
        finally:
            await registry.close()
        return await ProtocChild()(found.sources, found.root)

    _write(out, asyncio.run(run()))


def _write(out: Path, data: bytes) -> None:
    try:
        out.write_bytes(data)
    except OSError as error:
        raise InputInvalid(f"{out} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {len(data):,} bytes to {out}")


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
