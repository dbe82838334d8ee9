"""A Kafka broker of our own on loopback, from its published jars: for tests, benchmarks and development::

    with Kafka(folder) as broker:
        broker.address          # 127.0.0.1:PORT, without a password
        broker.with_password    # the same broker for USER with PASSWORD
        broker.encrypted        # and over TLS (broker.certificate), by SCRAM

One node that is broker and controller (KRaft), whose log is below ``folder``. Apart from its jars it needs Java 17.
``python -m scripts.kafka path | start | stop``: where its jars are, which Maven gets; a broker that stays.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
import tenacity
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace.distribute.spark.jvm import cache_folder
from headrace.errors import FixConfigError, RetryError
from scripts.airflow_env import free_ports
from scripts.java_server import QUICK_START
from scripts.maven import fetch_jars

VERSION: Final = "4.2.2"
USER, PASSWORD = "reader", "horse-%2F-staple"
STATE = Path(".headrace/kafka")
_AUTHORITY: Final = "Headrace's tests"
_JARS = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_OPTIONS = (*QUICK_START, "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


class KafkaStartError(RetryError):
    """The broker was started and could not be used."""

    code = "retry.kafka_start"


def jars() -> Path:
    """The folder of the jars, if they are here."""
    return cache_folder() / f"kafka-{VERSION}"


def fetch() -> Path:
    """The folder of the jars, which Maven gets where they are not. Raises JarsUnavailableError."""
    return fetch_jars(jars(), _JARS, with_dependencies=True)


def java(main: str, *words: str, options: Sequence[str] = _OPTIONS, more: Sequence[Path] = ()) -> list[str]:
    """The command that runs class ``main`` of Kafka's jars."""
    program = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"
    path = os.pathsep.join(str(folder / "*") for folder in (fetch(), *more))
    return [program, *options, "-cp", path, main, *words]


class Kafka:
    """A broker, once entered. What ``settings`` say goes into its server.properties."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self._ports = free_ports(4)
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens to anybody."""
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def with_password(self) -> str:
        """Where it listens to those who have a password (SASL, plain)."""
        return f"127.0.0.1:{self._ports[1]}"

    @property
    def encrypted_address(self) -> str:
        """Where it listens over TLS to those who have a password (SASL, SCRAM-SHA-512)."""
        return f"127.0.0.1:{self._ports[2]}"

    @property
    def certificate(self) -> Path:
        """The certificate of the authority that has signed its own."""
        return self.folder / "authority.pem"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self._write_properties()
        cluster = f"A{secrets.token_urlsafe(16)[1:]}"  # 16 bytes as Kafka writes them; none may begin with a dash
        user = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        words = ("format", "-t", cluster, "-c", str(properties), "--add-scram", user)
        process = subprocess.run(
            java("kafka.tools.StorageTool", *words),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if process.returncode:
            output = (process.stdout + process.stderr)[-2000:]
            raise KafkaStartError(f"Kafka's StorageTool ended with {process.returncode}: {output}")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, with what it stored before. Ctrl-C does not reach it. Raises KafkaStartError."""
        log = self.folder / "log.txt"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                java("kafka.Kafka", str(self.folder / "server.properties")),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait(log)
        except BaseException:
            self.kill()
            raise

    def _wait(self, log: Path) -> None:
        assert self._process is not None
        for attempt in tenacity.Retrying(
            stop=tenacity.stop_after_delay(_START_SECONDS),
            wait=tenacity.wait_fixed(0.05),
            retry=tenacity.retry_if_exception_type(OSError),
            reraise=True,
        ):
            with attempt:
                if self._process.poll() is not None:
                    raise KafkaStartError(f"Kafka ended with {self._process.returncode}: {log.read_text()[-2000:]}")
                socket.create_connection(("127.0.0.1", self._ports[0])).close()

    def kill(self) -> None:
        """End it as a machine does that loses its power."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it politely."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write_properties(self) -> Path:
        anybody, password, encrypted_port, controller = self._ports
        listeners = (
            f"ANYBODY://127.0.0.1:{anybody},PASSWORD://127.0.0.1:{password},ENCRYPTED://127.0.0.1:{encrypted_port}"
        )
        modules = "org.apache.kafka.common.security"
        login = f"{modules}.plain.PlainLoginModule required"
        _write_certificates(self.certificate, self.folder / "server.pem")
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,ANYBODY:PLAINTEXT,PASSWORD:SASL_PLAINTEXT,ENCRYPTED:SASL_SSL,PLAINTEXT:PLAINTEXT"
            ),
            "inter.broker.listener.name": "ANYBODY",
            "listener.name.password.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.encrypted.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.password.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
            "listener.name.encrypted.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
            "listener.name.encrypted.ssl.keystore.type": "PEM",
            "listener.name.encrypted.ssl.keystore.location": str(self.folder / "server.pem"),
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.backoff.ms": "200",
            "log.retention.check.interval.ms": "200",
            "log.segment.delete.delay.ms": "100",
            "log.initial.task.delay.ms": "200",
            **{name.replace("_", "."): value for name, value in self._settings.items()},
        }
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return properties


def _write_certificates(authority: Path, server: Path) -> None:
    """An authority's certificate, and a key with a certificate for 127.0.0.1 that it has signed."""
    began = datetime.now(UTC) - timedelta(minutes=5)

    def sign_certificate(name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _AUTHORITY)])
        builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(began).not_valid_after(began + timedelta(days=30))
        builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        places = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        return builder.add_extension(places, critical=False).sign(root, hashes.SHA256())

    root, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    as_text = serialization.Encoding.PEM
    authority.write_bytes(sign_certificate(_AUTHORITY, root, is_authority=True).public_bytes(as_text))
    secret = own.private_bytes(as_text, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    server.write_bytes(secret + sign_certificate("127.0.0.1", own, is_authority=False).public_bytes(as_text))


def _running() -> dict[str, str | float] | None:
    """The broker that ``start`` left, if it still runs."""
    try:
        server_state: dict[str, str | float] = json.loads((STATE / "server.json").read_text())
        return (
            server_state if psutil.Process(int(server_state["pid"])).create_time() == server_state["started"] else None
        )
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None


def _command_start() -> None:
    state = _running()
    if state is None:
        broker = Kafka((STATE / f"node-{os.getpid()}").absolute())
        broker.__enter__()
        state = {
            "pid": broker.pid,
            "started": psutil.Process(broker.pid).create_time(),
            "address": broker.address,
        }
        (STATE / "server.json").write_text(json.dumps(state))
    print(f"Kafka {VERSION} runs at {state['address']} (pid {state['pid']}).")
    print(f"Point a pipeline at it:  export HEADRACE_CONN_KAFKA=kafka://{state['address']}")


def _command_stop() -> None:
    state = _running()
    if state is not None:
        process = psutil.Process(int(state["pid"]))
        process.terminate()
        process.wait(_STOP_SECONDS)
    (STATE / "server.json").unlink(missing_ok=True)
    print("Kafka is stopped." if state else "No Kafka runs from this folder.")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["path", "start", "stop"])
    match parser.parse_args().command:
        case "path":
            print(fetch())
        case "start":
            _command_start()
        case "stop":
            _command_stop()


if __name__ == "__main__":
    try:
        main()
    except (FixConfigError, RetryError) as error:
        sys.exit(f"{error.code}: {error}")
