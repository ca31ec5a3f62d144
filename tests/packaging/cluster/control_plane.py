"""A Kubernetes control plane on loopback ports: etcd, kube-apiserver and kube-controller-manager, without nodes.

The two Kubernetes programs are built with Go from `control_plane_module`; etcd is Debian's `etcd-server`. Pods are created but
never run, because there is no scheduler and no kubelet.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from platformdirs import user_cache_path

from scorer.demo.broker.kraft_config import free_ports
from tests.support.processes import Program
from tests.support.waiting import until

MODULE = Path(__file__).with_name("control_plane_module")
VERSION = "v1.34.2"  # of k8s.io/kubernetes in go.mod
TOKEN = "administrator"  # the API server listens only on the loopback interface
START_SECONDS = 120.0


class Rejected(Exception):
    """The API server rejected an object, or accepted it with a warning; the message is that of the server."""


def kubernetes_program(name: str) -> Path:
    """Return the path of a program of Kubernetes; build it if it is missing, which takes ten minutes for the first one.

    Raises OSError if Go is not installed, CalledProcessError if the build fails.
    """
    path = user_cache_path("scorestream") / "go" / f"kubernetes-{VERSION}" / name
    if not path.exists():
        print(f"building {name} {VERSION}", file=sys.stderr)
        stamp = f"-X k8s.io/component-base/version.gitVersion={VERSION}"  # clients such as Helm ask for it
        command = ["nice", "-n", "15", "go", "build", "-mod=readonly", "-ldflags", stamp, "-o", str(path)]
        command.append(f"k8s.io/kubernetes/cmd/{name}")
        subprocess.run(command, cwd=MODULE, check=True)
    return path


class ControlPlane:
    """A context manager that starts the programs in a folder and stops them.

    Attributes:
        kubeconfig: The file with which clients such as Helm connect as an administrator.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._programs = ExitStack()
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def __enter__(self) -> Self:
        server, controllers = (kubernetes_program(name) for name in ("kube-apiserver", "kube-controller-manager"))
        (clients, peers), (secure, health) = free_ports(), free_ports()
        etcd = f"http://127.0.0.1:{clients}"
        peer = f"http://127.0.0.1:{peers}"
        self._write_credentials(f"https://127.0.0.1:{secure}")
        self._start(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        key = self._folder / "service-accounts.key"
        self._start(
            str(server),
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={secure}",
            f"--cert-dir={self._folder / 'certificates'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
        )
        certificate = self._folder / "certificates" / "apiserver.crt"
        until(certificate.exists, "the certificate of the API server", START_SECONDS)
        self._client = self._programs.enter_context(
            httpx.Client(
                base_url=f"https://127.0.0.1:{secure}",
                verify=str(certificate),
                trust_env=False,
                timeout=60,
                headers={"Authorization": f"Bearer {TOKEN}"},
            )
        )
        until(self._is_ready, "readiness of the API server", START_SECONDS)
        self._start(
            str(controllers),
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={key}",
            "--use-service-account-credentials",
            "--bind-address=127.0.0.1",
            f"--secure-port={health}",
            "--leader-elect=false",
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._programs.close()

    def apply(self, thing: Mapping[str, Any], namespace: str, *, dry_run: bool) -> None:
        """Apply an object as `kubectl apply --server-side --validate=strict` does. Raises Rejected.

        Args:
            thing: The object.
            namespace: The namespace of an object that has none and needs one.
            dry_run: Whether the server validates the object without storing it.
        """
        title = f"{thing['kind']}/{thing['metadata']['name']}"
        parameters = {"fieldManager": "tests", "fieldValidation": "Strict", "force": "true"}
        answer = self._client.patch(
            self._path(thing, namespace),
            content=json.dumps(thing),
            params=parameters | ({"dryRun": "All"} if dry_run else {}),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        if answer.is_error:
            raise Rejected(f"{title}: {answer.json()['message']}")
        if warning := answer.headers.get("Warning"):
            raise Rejected(f"{title}: {warning}")

    def read_objects(self, api_version: str, kind: str, namespace: str) -> list[dict[str, Any]]:
        """Return the objects of a kind in a namespace."""
        path = self._collection(api_version, kind, namespace)
        items: list[dict[str, Any]] = self._client.get(path).raise_for_status().json()["items"]
        return items

    def _path(self, thing: Mapping[str, Any], namespace: str) -> str:
        metadata = thing["metadata"]
        return (
            f"{self._collection(thing['apiVersion'], thing['kind'], metadata.get('namespace', namespace))}/{metadata['name']}"
        )

    def _collection(self, api_version: str, kind: str, namespace: str) -> str:
        group = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if (api_version, kind) not in self._resources:
            until(lambda: self._client.get(group).is_success, f"the API {api_version}", START_SECONDS)
            for resource in self._client.get(group).json()["resources"]:
                if "/" not in resource["name"]:
                    self._resources[api_version, resource["kind"]] = resource["name"], resource["namespaced"]
        if (api_version, kind) not in self._resources:
            raise Rejected(f"the API server knows no {kind} in {api_version}")
        plural, namespaced = self._resources[api_version, kind]
        return f"{group}/namespaces/{namespace}/{plural}" if namespaced else f"{group}/{plural}"

    def _is_ready(self) -> bool:
        try:
            return self._client.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def _start(self, program: str, *arguments: str) -> None:
        log = self._folder / f"{Path(program).name}.log"
        running = Program([program, *arguments], log)
        self._programs.callback(running.kill)

    def _write_credentials(self, address: str) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        (self._folder / "service-accounts.key").write_bytes(private)
        (self._folder / "tokens.csv").write_text(f"{TOKEN},administrator,administrator,system:masters\n")
        cluster = {"server": address, "certificate-authority": str(self._folder / "certificates" / "apiserver.crt")}
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "tests", "cluster": cluster}],
                    "users": [{"name": "administrator", "user": {"token": TOKEN}}],
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "administrator"}}],
                    "current-context": "tests",
                }
            )
        )
