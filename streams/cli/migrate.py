"""`workflow-runs migrate`: the store's tables."""

import asyncio

import click

from store.migrate import migrate as apply_migrations
from store.migrate import plan
from streams.settings import load_settings


@click.command()
@click.option("--plan", "only_plan", is_flag=True, help="Say what would be applied, and change nothing.")
def migrate(only_plan: bool) -> None:
    """Bring the database to this version's tables. Forward only; safe to run from many places at once."""
    settings = load_settings()
    settings.require("database_url")
    url = settings.database_url or ""
    names = asyncio.run(plan(url) if only_plan else apply_migrations(url))
    for name in names:
        click.echo(f"{'would apply' if only_plan else 'applied'} {name}")
    if not names:
        click.echo("the database is up to date")
