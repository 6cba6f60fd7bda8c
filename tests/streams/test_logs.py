"""Log lines say which run and which step they are about."""

import asyncio
import json
import logging

from streams.logs import JsonFormatter, RepeatFilter, TextFormatter, logged_as


def record(message: str, name: str = "streams.driver", **extra: object) -> logging.LogRecord:
    return logging.getLogger(name).makeRecord(name, logging.WARNING, __file__, 1, message, (), None, extra=extra)


async def test_a_line_carries_the_run_and_step_of_its_task_and_of_no_other() -> None:
    async def in_a_run(job_id: str) -> str:
        with logged_as(job_id=job_id):
            await asyncio.sleep(0)
            with logged_as(step="embed"):
                return JsonFormatter().format(record("called"))

    one, two = await asyncio.gather(in_a_run("job-1"), in_a_run("job-2"))

    assert (json.loads(one)["job_id"], json.loads(one)["step"]) == ("job-1", "embed")
    assert json.loads(two)["job_id"] == "job-2"
    assert "job_id" not in json.loads(JsonFormatter().format(record("outside")))


def test_a_json_line_is_one_line_whatever_the_message() -> None:
    line = JsonFormatter().format(record('two\nlines and "quotes"', job_id="j"))
    assert "\n" not in line
    assert json.loads(line)["message"] == 'two\nlines and "quotes"'


def test_a_text_line_names_what_it_is_about() -> None:
    assert TextFormatter().format(record("parked", job_id="j", step="review")).endswith("parked job_id=j step=review")


def test_a_client_that_repeats_itself_is_heard_once_and_we_always() -> None:
    once = RepeatFilter(seconds=3600)
    noise = [once.filter(record("broker away", name="aiokafka.conn")) for _ in range(3)]
    ours = [once.filter(record("store away")) for _ in range(3)]
    assert (noise, ours) == ([True, False, False], [True, True, True])
