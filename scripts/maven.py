"""Jars of published servers, which Maven gets into the cache: for tests and benchmarks."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import FixConfigError


class JarsUnavailableError(FixConfigError):
    """The jars of a server are not here, and cannot be had."""

    code = "config.jars_unavailable"


def fetch_jars(folder: Path, jars: Sequence[str], *, with_dependencies: bool = False) -> Path:
    """``folder`` with these ``jars`` (group:artifact:version, or with :classifier), which Maven gets where it is not
    there. Raises JarsUnavailableError.
    """
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError(f"the jars of {folder.name} need Maven: apt install maven")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_pom(jars))
        got = Path(work) / "jars"
        which = ["-DincludeScope=runtime"] if with_dependencies else ["-DexcludeTransitive=true"]
        words = ["dependency:copy-dependencies", *which, f"-DoutputDirectory={got}"]
        process = subprocess.run(
            [maven, "--quiet", "--batch-mode", "--file", str(pom), *words], capture_output=True, text=True, check=False
        )
        if process.returncode != 0:
            raise JarsUnavailableError(f"Maven did not get the jars: {process.stdout[-2000:]}{process.stderr[-500:]}")
        if not folder.is_dir():  # nobody was faster
            got.rename(folder)
    return folder


def _pom(jars: Sequence[str]) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    dependencies_xml = "".join(
        "<dependency>"
        + "".join(f"<{name}>{value}</{name}>" for name, value in zip(names, jar.split(":"), strict=False))
        + "</dependency>"
        for jar in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>headrace</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies_xml}</dependencies></project>"
    )
