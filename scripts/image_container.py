"""File systems made from the images of ``scripts.images``, in which programs run as the services of compose.yaml do.
They run as the image's own user, without capabilities, the image read-only, memory where compose.yaml says. No engine
of containers is needed: a program runs in a chroot, on this machine's network.
"""

import contextlib
import json
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from scripts.images import REPOSITORY, ImagesError, buildah, image

USER: Final = 50000
_ENTRYPOINT = ("/usr/bin/tini", "-s", "--", "headrace-entrypoint")


class CheckFailedError(ImagesError):
    """An image does not do what it is for; the message says which and what."""


@dataclass(frozen=True)
class Container:
    """A file system made from an image. ``folder`` of this machine is /data in it, and ``pipelines`` /pipelines.

    ``user`` and ``environment`` are what the image says; ``memory`` are places that are no part of it.
    """

    name: str
    folder: Path
    pipelines: Path
    root: Path
    user: str
    environment: Mapping[str, str]
    memory: Sequence[str]

    def start(self, *command: str, log: Path, **variables: str) -> "subprocess.Popen[bytes]":
        """``command`` through the image's entrypoint, in a session of its own, all it says in ``log``."""
        with log.open("wb") as output:
            return subprocess.Popen(
                self._command((*_ENTRYPOINT, *command), variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, *command: str, **variables: str) -> str:
        """The standard output of ``command``, run through the image's entrypoint. Raises CheckFailedError."""
        process = subprocess.run(
            self._command((*_ENTRYPOINT, *command), variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode != 0:
            ends = f"{process.stdout[-4000:]}\n{process.stderr[-8000:]}"
            raise CheckFailedError(f"{self.name}: {' '.join(command)} ended with {process.returncode}:\n{ends}")
        return process.stdout

    def _command(self, command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        environment = {"HOME": "/home/headrace", **self.environment, "SPARK_LOCAL_IP": "127.0.0.1", **variables}
        own = ["env", "--ignore-environment", *(f"{name}={value}" for name, value in environment.items())]
        mounts = (self.root, self.folder, self.pipelines, " ".join(self.memory))
        script = ["sh", "-c", _SEAL, "seal", *map(str, mounts), self.user]
        # another host name nothing resolves
        return ["unshare", "--mount", "--uts", *script, *own, *command]


_SEAL = """
set -e
root=$1 data=$2 pipelines=$3 memory=$4 user=$5
shift 5
hostname localhost
mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind "$data" "$root/data"
mount --bind "$pipelines" "$root/pipelines"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind /etc/hosts "$root/etc/hosts"
mount -o remount,bind,ro "$root/pipelines"
mount -o remount,bind,ro "$root"
for place in $memory; do
  mkdir -p "$root${place%%:*}"
  mount -t tmpfs -o "noexec,nosuid,nodev,${place#*:}" tmpfs "$root${place%%:*}"
done
set -- --reuid "$user" --regid 0 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs "$@"
exec chroot "$root" setpriv "$@"
"""
"""Runs a program in a file system as the services of compose.yaml run."""


def services() -> dict[str, dict[str, Any]]:
    """The services of compose.yaml."""
    services_by_name: dict[str, dict[str, Any]] = yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text())[
        "services"
    ]
    return services_by_name


def memory_of(service: Mapping[str, Any]) -> list[str]:
    """The places that compose.yaml gives a service in memory, or volumes of their own."""
    volumes = [each.split(":")[-1] for each in service["volumes"] if not each.endswith(":ro")]
    own = f"exec,uid={USER},gid=0,mode=0770"
    return [*service["tmpfs"], *(f"{place}:{own}" for place in volumes)]


@contextlib.contextmanager
def container(name: str, folder: Path) -> Iterator[Container]:
    """A container of the image of that name (one of NAMES), which goes afterwards."""
    container_name = f"headrace-check-{name}-{secrets.token_hex(4)}"
    buildah("from", "--pull-never", "--name", container_name, image(name))
    try:
        with _mount_container(container_name) as root:
            for mount in ("data", "pipelines"):
                (root / mount).mkdir()
            (root / "etc" / "hosts").touch()
            config = _config(container_name)
            environment = dict(each.split("=", 1) for each in config["Env"])
            service = services()["spark-worker" if name == "spark" else "airflow-scheduler"]
            pipelines = REPOSITORY / "jobs" / "pipelines"
            yield Container(container_name, folder, pipelines, root, config["User"], environment, memory_of(service))
    finally:
        buildah("rm", container_name)


def _config(container_name: str) -> dict[str, Any]:
    """What the image says of who runs in it, and of variables."""
    command = ["buildah", "inspect", "--type", "container", container_name]
    info = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    config: dict[str, Any] = info["OCIv1"]["config"]
    return config


@contextlib.contextmanager
def _mount_container(container_name: str) -> Iterator[Path]:
    """The file system of a container, on this machine."""
    folder = subprocess.run(["buildah", "mount", container_name], capture_output=True, text=True, check=True).stdout
    try:
        yield Path(folder.strip())
    finally:
        subprocess.run(["buildah", "umount", container_name], capture_output=True, check=True)


def new_folder(folder: Path) -> Path:
    """A new folder of the images' user."""
    folder.mkdir()
    give(folder)
    return folder


def give(folder: Path) -> None:
    """Hand ``folder`` and all in it to the user of the images."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, 0)
