"""Locale, time zone and encodings of a process and of its JVM change no row, nothing that is printed, nothing that is
stored.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

PIPELINE = '''"""Käufe."""

from datetime import date, datetime
from decimal import Decimal

import headrace as hr
from headrace import col

käufe = hr.csv(
    "landung/kauf",
    {"id": int, "ort": str, "am": datetime, "tag": date, "preis": Decimal, "gewicht": float},
    max_files=2,
).event_time("am", bound="40d")
PIPELINE = hr.Pipeline(
    "kaeufe",
    käufe,
    description="Käufe je Ort, 東京 und İzmir.",
    key="ort",
    what={
        "n": hr.count(),
        "preis": col("preis").sum(),
        "gewicht": col("gewicht").mean(),
        "klein": col("ort").lower().max(),
        "gross": col("ort").upper().min(),
        "hier": col("am").date().max(),
        "tag": col("tag").min(),
        "text": col("gewicht").cast(str).max(),
    },
    where=hr.CalendarWindows("day", "Europe/Berlin"),
    when=hr.on_update(),
    how=hr.retracting("90d"),
)
'''
PROGRAM = """import json, sys
import headrace as hr
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace_snapshots.store import open_store
result = hr.open(sys.argv[1])[resolve_pipeline("kaeufe.py")].run(executor="local")
print(json.dumps([len(result.epochs), [info.path for info in open_store(sys.argv[1]).list("landung/")]]))
"""
PLACES = ["Tromsø", "İzmir", "ısı", "TITLE", "東京 🚰", "Straße", "a,b"]  # noqa: RUF001 - letters of Turkish
USUAL = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
JVM = "-Duser.timezone=Asia/Kathmandu -Duser.language=tr -Duser.country=TR -Dfile.encoding=ISO-8859-1"
NO_UTF8 = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
OTHERS = {
    "ascii": {"LC_ALL": "C", "LANG": "C", "PYTHONIOENCODING": "ascii", "TZ": "Asia/Kathmandu", **NO_UTF8},
    "turkish": {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "America/St_Johns", **NO_UTF8},
    "latin": {"LC_ALL": "de_DE.ISO-8859-1", "LANG": "de_DE.ISO-8859-1", "TZ": "EST5EDT", **NO_UTF8},
}


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of locales that this machine may not have."""
    folder = tmp_path_factory.mktemp("locales")
    for name, (language, letters) in {
        "tr_TR.UTF-8": ("tr_TR", "UTF-8"),
        "de_DE.ISO-8859-1": ("de_DE", "ISO-8859-1"),
    }.items():
        if shutil.which("localedef"):
            subprocess.run(["localedef", "-i", language, "-f", letters, str(folder / name)], check=False)
    return folder


class LocaleDeployment:
    """A root with files of such names, and the command line under settings of a process."""

    def __init__(self, folder: Path, locales: Path) -> None:
        self.folder, self._locales = folder, locales
        self.file = folder / "kaeufe.py"
        folder.mkdir()
        self.file.write_text(PIPELINE, encoding="utf-8")
        self.land("süd-东/ä.csv", 0)
        self.land("süd-东/z 🚰.csv", 1)
        self.land("nord/ß=1/é.csv", 2)

    def land(self, name: str, first: int) -> None:
        file = self.folder / "root" / "landung" / "kauf" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            f'{number},"{place}",2026-03-{number % 28 + 1:02}T23:{first:02}:15Z,2026-03-01,{number}.25,{number / 7}'
            for number, place in enumerate(PLACES * 3)
        ]
        text = "\n".join(["id,ort,am,tag,preis,gewicht", *lines, f'x,"{PLACES[first]}",ü,ö,ä,'])
        file.write_text(text + "\n", encoding="utf-8")
        os.utime(file, ns=(0, 1_770_000_000_000_000_000))

    def headrace(self, settings: Mapping[str, str], *words: str) -> bytes:
        """What a command prints."""
        root = (self.folder / "root").as_uri()
        return self._run(settings, str(Path(sys.executable).with_name("headrace")), *words, "--root", root)

    def _run(self, settings: Mapping[str, str], *words: str) -> bytes:
        dropped_prefixes = ("LC_", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")
        kept_variables = {name: value for name, value in os.environ.items() if not name.startswith(dropped_prefixes)}
        completed_process = subprocess.run(
            words,
            cwd=self.folder,
            env={**kept_variables, "LOCPATH": str(self._locales), **settings},
            capture_output=True,
            check=False,
        )
        assert completed_process.returncode == 0, completed_process.stderr.decode(errors="replace")
        return completed_process.stdout

    def program(self, settings: Mapping[str, str]) -> list[Any]:
        """How many epochs a run of a program has, and the names that its store lists."""
        result = self._run(settings, sys.executable, "-c", PROGRAM, (self.folder / "root").as_uri())
        epochs, paths = json.loads(result)
        return [epochs, [path.removeprefix("landung/kauf/") for path in paths]]

    def run(self, settings: Mapping[str, str], branch: str, executor: str) -> list[tuple[str, str]]:
        """What a run of a fixed clock stores."""
        mode = ("--mode", "replay", "--clock", "2026-04-01T00:00:00Z", "--clock-step", "5m", "--branch", branch)
        self.headrace(settings, "run", str(self.file), *mode, "--executor", executor, "--create")
        return self.stored_files()

    def replay(self, settings: Mapping[str, str], branch: str, executor: str) -> dict[str, object]:
        """All that such a run leaves behind, and what is printed of it."""
        stored_files = self.run(settings, branch, executor)
        file, place_arguments = str(self.file), ("--at", branch)
        printed_texts = [
            self.headrace(settings, "read", file, *place_arguments, "--format", "json"),
            self.headrace(settings, "read", file, *place_arguments),
            self.headrace(settings, "read", file, *place_arguments, "--view", "rejected"),
        ]
        return {"printed": printed_texts, "stored": stored_files}

    def stored_files(self) -> list[tuple[str, str]]:
        """What the data files of main and branches hold, by what they are of."""
        root = self.folder / "root" / "kaeufe" / "data"
        files = sorted(root.rglob("*.parquet"))
        assert files
        return sorted((file.name.partition("-")[0], hashlib.sha256(file.read_bytes()).hexdigest()) for file in files)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory, locales: Path) -> LocaleDeployment:
    return LocaleDeployment(tmp_path_factory.mktemp("usual") / "root", locales)


@pytest.fixture(scope="module")
def expected(usual: LocaleDeployment) -> dict[str, object]:
    """What a process leaves behind whose settings are usual."""
    return usual.replay(USUAL, "b", "local")


@pytest.mark.parametrize("settings", OTHERS)
def test_locale_and_zone_of_a_process_change_nothing(
    settings: str, tmp_path: Path, locales: Path, expected: dict[str, object]
) -> None:
    _need(settings, locales)
    assert LocaleDeployment(tmp_path / "root", locales).replay(OTHERS[settings], "b", "local") == expected


@pytest.mark.spark
def test_locale_and_zone_of_a_jvm_change_nothing(tmp_path: Path, locales: Path, expected: dict[str, object]) -> None:
    usual = LocaleDeployment(tmp_path / "usual", locales).replay(USUAL, "b", "spark")
    settings = {**OTHERS["ascii"], "HEADRACE_JAVA_OPTIONS": f"{os.environ['HEADRACE_JAVA_OPTIONS']} {JVM}"}
    assert LocaleDeployment(tmp_path / "root", locales).run(settings, "b", "spark") == usual["stored"]
    assert usual["printed"] == expected["printed"]  # the other run's would be, too: no JVM takes part in reading


@pytest.mark.parametrize("settings", ["ascii", "latin"])
def test_what_was_read_is_not_read_again_by_a_program_in_another_locale(
    settings: str, tmp_path: Path, locales: Path
) -> None:
    """A program of one's own is as Python starts it: nobody begins it again in UTF-8."""
    _need(settings, locales)
    deployment = LocaleDeployment(tmp_path / "root", locales)
    assert deployment.program(USUAL) == [2, ["nord/ß=1/é.csv", "süd-东/z 🚰.csv", "süd-东/ä.csv"]]
    assert deployment.program(OTHERS[settings]) == [0, ["nord/ß=1/é.csv", "süd-东/z 🚰.csv", "süd-东/ä.csv"]]
    deployment.land("süd-东/ö.csv", 1)
    epochs, names = deployment.program(OTHERS[settings])
    assert (epochs, "süd-东/ö.csv" in names) == (1, True)
    assert deployment.program(USUAL)[0] == 0
    printed_text = deployment.headrace(USUAL, "read", str(deployment.file), "--format", "json")
    assert [row["n"] for row in json.loads(printed_text)] == [4] * 21


def _need(settings: str, locales: Path) -> None:
    locale = OTHERS[settings]["LC_ALL"]
    if locale != "C" and not (locales / locale).is_dir():
        pytest.skip(f"this machine makes no locale {locale} (localedef)")
