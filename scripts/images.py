"""``python -m scripts.images build | remove``: the images of docker/ without a Docker engine, by buildah in a chroot.

Needs buildah, debootstrap and root. The base is Debian from its own mirror (``--mirror``), or an image that exists
(``--base``). Intermediate images go when the build ends; a build takes about 10 GB of disk, and leaves 4.
scripts/image_checks.py runs pipelines in what was built.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
VERSION: str = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
NAMES = ("spark", "airflow")
SUITE = "bookworm"
BASE = f"localhost/headrace-base:{SUITE}"
MIRROR = "http://deb.debian.org"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_ARCHIVES = (("debian", SUITE), ("debian", f"{SUITE}-updates"), ("debian-security", f"{SUITE}-security"))


class ImagesError(Exception):
    """Images cannot be built or used here; the message says what is missing."""


def image(name: str) -> str:
    """The full name of one of NAMES, as compose.yaml has it."""
    return f"localhost/headrace-{name}:{VERSION}"


def buildah(*arguments: str | Path) -> None:
    """Run buildah, its output on ours. Raises ImagesError."""
    process = subprocess.run(["buildah", *arguments], stdin=subprocess.DEVNULL, check=False)
    if process.returncode != 0:
        raise ImagesError(f"buildah {arguments[0]} failed with exit code {process.returncode}; its output is above")


def exists(name: str) -> bool:
    """Whether there is an image of that full name."""
    command = ["buildah", "inspect", "--type", "image", name]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def require(*programs: str) -> None:
    """Raise ImagesError unless ``programs`` are there and this is root."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise ImagesError(f"no {' and no '.join(missing)} on PATH (on Debian: apt install {' '.join(missing)})")
    if os.geteuid() != 0:
        raise ImagesError("building and running images in a chroot needs root")


def build(base: str | None, mirror: str, certificates: Path) -> None:
    """Build both images, on ``base`` or on a Debian of ``mirror``. Raises ImagesError."""
    require("buildah", *(() if base else ("debootstrap",)))
    if base is None and not exists(BASE):
        _build_base(mirror)
    for name in NAMES:
        print(f"building {image(name)}", file=sys.stderr, flush=True)
        options = ["--isolation", "chroot", "--layers", "--pull-never", "--build-arg", f"BASE={base or BASE}"]
        if certificates.is_file():
            options += ["--secret", f"id=certificates,src={certificates}"]
        containerfile = REPOSITORY / "docker" / "Containerfile"
        buildah("bud", *options, "--file", containerfile, "--target", name, "--tag", image(name), REPOSITORY)
    buildah("rmi", "--prune", "--force")


def remove() -> None:
    """Remove both images, and the base that was built for them."""
    require("buildah")
    for name in (*map(image, NAMES), BASE):
        if exists(name):
            buildah("rmi", "--force", name)


def _build_base(mirror: str) -> None:
    """A minimal Debian, from nothing."""
    print(f"building {BASE} from {mirror}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="headrace-base-") as folder:
        root = Path(folder) / "root"
        command = ["debootstrap", "--variant=minbase", SUITE, str(root), f"{mirror}/debian"]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
        if process.returncode != 0:
            log = root / "debootstrap" / "debootstrap.log"
            log_text = log.read_text(errors="replace")[-2000:] if log.is_file() else ""
            raise ImagesError(f"debootstrap from {mirror} failed with exit code {process.returncode}\n{log_text}")
        sources = "".join(f"deb {mirror}/{archive} {suite} main\n" for archive, suite in _ARCHIVES)
        (root / "etc" / "apt" / "sources.list").write_text(sources)
        containerfile = Path(folder) / "Containerfile"
        containerfile.write_text("FROM scratch\nADD . /\n")
        buildah("bud", "--isolation", "chroot", "--file", containerfile, "--tag", BASE, root)


def main(arguments: list[str]) -> int:
    """Exit code 0 when all is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build both images")
    building.add_argument("--base", help="an image of Debian 12 that buildah has, instead of one by debootstrap")
    building.add_argument("--mirror", default=MIRROR, help="where Debian's archives are (default: %(default)s)")
    building.add_argument(
        "--certificates",
        type=Path,
        default=CERTIFICATES,
        help="CA certificates to trust while building; they stay in no image (default: %(default)s)",
    )
    commands.add_parser("remove", help="remove what was built")
    options = parser.parse_args(arguments)
    try:
        if options.command == "build":
            build(options.base, options.mirror, options.certificates)
        else:
            remove()
    except ImagesError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
