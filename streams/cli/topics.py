"""`workflow-runs topics`: the cluster's topics against topics.yaml."""

import asyncio
import sys

import click

from schemas.topics import Topics, load_topics
from streams.cli.exits import Exit
from streams.cli.output import print_json, print_problem
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.settings import Settings, load_settings


@click.group()
def topics() -> None:
    """Create the topics of TOPICS_FILE, or compare the cluster with it."""


@topics.command()
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--grow", is_flag=True, help="Add missing partitions too: new records of a key may go to another one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def apply(dry_run: bool, grow: bool, as_json: bool) -> None:
    """Create what is missing and set what differs. Never shrinks or deletes; doing it again changes nothing."""
    admin, wanted = _admin(load_settings())
    plan = asyncio.run(admin.plan(wanted, grow=grow) if dry_run else admin.apply(wanted, grow=grow))
    changes, withheld = list(map(str, plan.changes)), list(map(str, plan.withheld))
    if as_json:
        print_json({"applied": not dry_run, "changes": changes, "withheld": withheld})
        return
    for change in changes:
        click.echo(f"{'would ' if dry_run else ''}{change}")
    for finding in withheld:
        click.echo(f"left alone: {finding}")
    if not changes:
        click.echo("the topics are as they should be" if not withheld else "nothing else to do")


@topics.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(as_json: bool) -> None:
    """Say in what the cluster differs from the file or is not safe; exits 1 when it does."""
    settings = load_settings()
    admin, wanted = _admin(settings)
    findings = list(map(str, asyncio.run(admin.check(wanted, remember_seconds=settings.remember_seconds))))
    if as_json:
        print_json({"ok": not findings, "findings": findings})
    for finding in findings if not as_json else ():
        print_problem(finding)
    if findings:
        sys.exit(int(Exit.REFUSED))
    if not as_json:
        click.echo("the topics are as they should be")


def _admin(settings: Settings) -> tuple[TopicAdmin, Topics]:
    settings.require("kafka_bootstrap")
    admin = TopicAdmin(settings.kafka_bootstrap or "", KafkaSecurity.from_settings(settings))
    return admin, load_topics(settings.topics_file)
