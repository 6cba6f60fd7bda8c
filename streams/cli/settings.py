"""`workflow-runs settings`."""

import click

from streams.settings import table


@click.command()
def settings() -> None:
    """List every setting as a Markdown table: name, default, meaning."""
    click.echo("| setting | default | meaning |\n|---|---|---|")
    for name, default, meaning in table():
        click.echo(f"| `{name}` | {f'`{default}`' if default else ''} | {meaning} |")
