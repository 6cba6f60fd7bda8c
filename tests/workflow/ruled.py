"""The mails of a campaign, whose types declare rules."""

from collections.abc import Mapping
from typing import Any

from tests.workflow.mail import mail_all
from tests.workflow.samples import source

IMPORT = 'import "buf/validate/validate.proto";'

_FIELD = "(buf.validate.field)"
_RULES = {
    "package mail.v1;": f"package mail.v1;\n{IMPORT}",
    "string title = 1;": f"string title = 1 [{_FIELD}.string.max_len = 5];",
    "string to = 1;": f'string to = 1 [{_FIELD}.string = {{not_in: ["3", "5"]}}];',
    "repeated Mail mails = 1;": f"repeated Mail mails = 1 [{_FIELD}.repeated.max_items = 8];",
    "string id = 1;": f"string id = 1 [{_FIELD}.cel = "
    "{id: 'sent.id', message: 'must be sent', expression: \"this != 'm-2'\"}];",
}


def ruled_source(changes: Mapping[str, str] = _RULES) -> str:
    """mail.proto with rules: titles of 5 characters, no mails to 3 or 5, batches of 8, and nothing sent as m-2."""
    text = source("mail.proto")
    for plain, ruled in changes.items():
        assert plain in text
        text = text.replace(plain, ruled)
    return text


def ruled_mail_all(*, edge: Mapping[str, Any] | None = None, **fan_out: Any) -> dict[str, Any]:
    """`mail_all` over these types."""
    document = mail_all(edge=edge, **fan_out)
    document["schema"]["sources"] = {"mail.proto": ruled_source()}
    return document


def ruled_mail(**step: Any) -> dict[str, Any]:
    """One mail, to the first of the drafts' addresses, given as the title."""
    document = ruled_mail_all()
    document["steps"] = [
        {"name": "mail", "target": "mailer", "method": "mail.v1.Mailer/Send", "rules": ["to = input.title"], **step}
    ]
    return document
