"""The jars of Apache Kafka, fetched once by Maven, and the Java to run them."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

POM: Final = Path(__file__).with_name("kafka") / "pom.xml"
_CHECKOUT: Final = Path(__file__).parents[2]
_LOWEST_JAVA: Final = 17
_FETCH_SECONDS: Final = 600.0
_QUOTED_CHARACTERS: Final = 500


class Unavailable(RuntimeError):
    """Apache Kafka cannot run on this machine; the message is the reason, in a few words."""


def default_cache() -> Path:
    """Return where jars are kept: ignored by git in a checkout, else in the user's cache."""
    if (_CHECKOUT / "pyproject.toml").exists():
        return _CHECKOUT / ".cache" / "kafka"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workflow-runs" / "kafka"


def java() -> Path:
    """Return the `java` program, that of JAVA_HOME first.

    Raises:
        Unavailable: there is none, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise Unavailable("no Java")
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', answer.stderr)
    if answer.returncode != 0 or version is None:
        raise Unavailable(f"{found} does not run")
    if int(version[1]) < _LOWEST_JAVA:
        raise Unavailable(f"Java {version[1]} is older than {_LOWEST_JAVA}")
    return Path(found)


def fetch(cache: Path | None = None) -> Path:
    """Return the folder of the jars, below `cache`; the first time Maven fetches them, in about half a minute.

    Several processes may ask at once: one fetches, the others wait for it.

    Raises:
        Unavailable: there is no Maven, or it could not fetch them.
    """
    cache = cache or default_cache()
    jars = cache / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    if jars.exists():
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            _fetch(jars)
    return jars


def _fetch(jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("no Maven to fetch it with")
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=jars.parent) as folder:
        arguments = ["-B", "-q", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command = [maven, *arguments, f"-DoutputDirectory={folder}/jars"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"Maven took over {_FETCH_SECONDS:.0f} s to fetch it") from None
        if done.returncode != 0:
            said = " ".join((done.stdout + done.stderr).split())[:_QUOTED_CHARACTERS]
            raise Unavailable(f"Maven could not fetch it: {said}")
        # Whole or not there: a fetch that is cut off leaves nothing that looks finished.
        (Path(folder) / "jars").rename(jars)
