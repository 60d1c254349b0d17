"""The files in deploy/: they say what the gateway understands, and agree with each other."""

import asyncio
import configparser
import io
import json
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from tests.docs.pages import blocks
from tests.replicas.cluster import Cluster, nginx_in_front, peer_token, running_cluster

from openclaw_a2a.cli.dispatch import build_commands
from openclaw_a2a.settings import Settings, load_settings
from openclaw_a2a.store import postgres_address

Json = Any

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ENVIRONMENT = {"DATABASE_PASSWORD": "secret", "ALICE_TOKEN": "a" * 40}
HANDOVER_S = 10
"""What a supervisor leaves a gateway beyond `server.stopSeconds`."""


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def compose() -> Json:
    return yaml.safe_load(read("compose.yaml"))


def manifests() -> dict[str, Json]:
    return {one["kind"]: one for one in yaml.safe_load_all(read("kubernetes.yaml"))}


def pod() -> Json:
    return manifests()["Deployment"]["spec"]["template"]["spec"]


def container() -> Json:
    [found] = pod()["containers"]
    return found


def settings_files() -> dict[str, str]:
    return {
        "gateway.json5": read("gateway.json5"),
        "kubernetes.yaml": manifests()["ConfigMap"]["data"]["gateway.json5"],
    }


def load(text: str, folder: Path, environ: dict[str, str] | None = None) -> Settings:
    file = folder / "gateway.json5"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, environ={**ENVIRONMENT, **(environ or {})}).settings


@pytest.fixture(params=["gateway.json5", "kubernetes.yaml"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return load(settings_files()[request.param], tmp_path)


def test_settings_are_those_of_a_replica_that_asks_who_calls(settings: Settings) -> None:
    assert settings.store.kind.value == "postgres"
    assert settings.store.replicas
    assert settings.server.host == "0.0.0.0"
    assert settings.server.trusted_proxies
    assert settings.peers


# -------------------------------------------------------------------- containers


def dockerfile() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", read("Dockerfile"), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line]


def image_environment() -> dict[str, str]:
    [text] = [rest for word, rest in dockerfile() if word == "ENV"]
    return dict(pair.split("=", 1) for pair in text.split())


def test_image_copies_files_that_exist_and_are_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for word, rest in dockerfile():
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source.split('/')[0]}" in ignored


def test_image_starts_a_command_that_exists() -> None:
    [command] = [json.loads(rest) for word, rest in dockerfile() if word == "CMD"]
    name, *words = command
    assert name == "openclaw-a2a"
    build_commands().parse_args(words, exit_on_error=False, print_error=False)
    assert [rest for word, rest in dockerfile() if word == "STOPSIGNAL"] == ["SIGTERM"]


def test_image_names_no_registry() -> None:
    images = [rest.split()[0] for word, rest in dockerfile() if word == "FROM"]
    images += [one["image"] for one in compose()["services"].values()]
    images.append(container()["image"])
    # A host in front of the first slash has a dot or a port.
    assert [one for one in images if re.match(r"[^/]*[.:][^/]*/", one)] == []


def gateways() -> dict[str, Json]:
    services = compose()["services"]
    return {name: one for name, one in services.items() if name.startswith("gateway")}


def test_compose_starts_what_nginx_and_the_settings_name(tmp_path: Path) -> None:
    settings = load(read("gateway.json5"), tmp_path)
    services, found = compose()["services"], compose()
    servers = re.findall(r"^\s+server ([\w-]+):(\d+) ", read("nginx.conf"), re.MULTILINE)
    assert [name for name, _ in servers] == list(gateways())
    assert {int(port) for _, port in servers} == {settings.server.port}
    address = postgres_address(settings.store.url)
    assert address.place.split(":")[0] in services
    database = services["database"]["environment"]
    assert (database["POSTGRES_USER"], database["POSTGRES_DB"]) == ("gateway", address.database)
    [subnet] = found["networks"]["inside"]["ipam"]["config"]
    assert list(settings.server.trusted_proxies) == [subnet["subnet"]]
    [published] = services["balancer"]["ports"]
    assert settings.server.public_base_url.endswith(":" + published.split(":")[1])
    assert f"listen {published.split(':')[2]};" in read("nginx.conf")
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in found["volumes"] or (DEPLOY / source).is_file(), source
        for name in service.get("depends_on", ()):
            assert name in services
        assert set(service["networks"]) <= found["networks"].keys()


def test_compose_gives_every_gateway_its_name_and_its_secrets(tmp_path: Path) -> None:
    for name, service in gateways().items():
        values = {key: ENVIRONMENT.get(key, value) for key, value in service["environment"].items()}
        settings = load(read("gateway.json5"), tmp_path, {**image_environment(), **values})
        assert settings.store.replica_name == name
        assert str(settings.data) == image_environment()["OPENCLAW_A2A_DATA"]
        assert service["volumes"][0].split(":")[1] == image_environment()["OPENCLAW_A2A_CONFIG"]
        assert ENVIRONMENT.keys() <= service["environment"].keys()
        grace = int(service["stop_grace_period"].removesuffix("s"))
        assert grace >= settings.server.stop_seconds + HANDOVER_S
        assert f":{settings.server.port}/readyz" in service["healthcheck"]["test"][-1]


# -------------------------------------------------------------------- Kubernetes


def test_manifests_select_the_pods_of_the_deployment() -> None:
    found = manifests()
    assert found.keys() == {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget"}
    versions = {kind: one["apiVersion"] for kind, one in found.items()}
    assert versions == {
        "ConfigMap": "v1",
        "Deployment": "apps/v1",
        "Service": "v1",
        "PodDisruptionBudget": "policy/v1",
    }
    deployment = found["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] < deployment["replicas"]
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_manifests_agree_on_ports_paths_and_names(tmp_path: Path) -> None:
    found, one = manifests(), container()
    values = {entry["name"]: entry["valueFrom"] for entry in one["env"]}
    environ = {**image_environment(), "OPENCLAW_A2A_STORE__REPLICA_NAME": "pod-1"}
    settings = load(settings_files()["kubernetes.yaml"], tmp_path, environ)
    assert settings.store.replica_name == "pod-1"
    assert ENVIRONMENT.keys() | {"OPENCLAW_A2A_STORE__REPLICA_NAME"} == values.keys()
    # The secret is made by hand, with the command at the top.
    keys = {value["secretKeyRef"]["key"] for value in values.values() if "secretKeyRef" in value}
    names = {value["secretKeyRef"]["name"] for value in values.values() if "secretKeyRef" in value}
    assert keys == set(re.findall(r"--from-literal=([\w-]+)=", read("kubernetes.yaml")))
    assert names == set(re.findall(r"create secret generic ([\w-]+)", read("kubernetes.yaml")))
    [port] = one["ports"]
    assert port["containerPort"] == settings.server.port
    [served] = found["Service"]["spec"]["ports"]
    assert served["targetPort"] == port["name"]
    assert {one[probe]["httpGet"]["port"] for probe in PROBES} == {port["name"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert volumes["settings"]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    [file] = found["ConfigMap"]["data"]
    assert f"{mounts['settings']}/{file}" == image_environment()["OPENCLAW_A2A_CONFIG"]
    assert mounts["data"] == image_environment()["OPENCLAW_A2A_DATA"]
    [user] = [rest for word, rest in dockerfile() if word == "USER"]
    assert pod()["securityContext"]["runAsUser"] == int(user)
    pause_s = int(one["lifecycle"]["preStop"]["exec"]["command"][1])
    grace_s = pod()["terminationGracePeriodSeconds"]
    assert grace_s >= pause_s + settings.server.stop_seconds + HANDOVER_S


PROBES = {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}


def test_probes_ask_what_they_are_for() -> None:
    found = {probe: container()[probe]["httpGet"]["path"] for probe in PROBES}
    assert found == PROBES


# -------------------------------------------------------------------- systemd


def units() -> dict[str, str]:
    [page] = [one.text for one in blocks("ini") if "run-as-a-service" in one.place]
    return {"openclaw-a2a.service": read("openclaw-a2a.service"), "page": page}


@pytest.mark.parametrize("name", ["openclaw-a2a.service", "page"])
def test_units_start_a_gateway_and_let_it_stop(name: str, tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string(units()[name])
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/bin/openclaw-a2a")
    build_commands().parse_args(words, exit_on_error=False, print_error=False)
    settings = load(read("gateway.json5"), tmp_path)
    stop_s = settings.server.stop_seconds if name.endswith(".service") else 10
    assert int(service["TimeoutStopSec"]) >= stop_s + HANDOVER_S
    for variable in re.findall(r"^Environment=(\w+)=", units()[name], re.MULTILINE):
        assert variable in ("OPENCLAW_A2A_CONFIG", "OPENCLAW_A2A_DATA")


@pytest.mark.parametrize("name", ["openclaw-a2a.service", "page"])
def test_systemd_finds_nothing_wrong_with_units(name: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on this machine")
    # It looks whether the program and the user exist.
    text = re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", units()[name])
    file = tmp_path / f"{name.removesuffix('.service')}.service"
    file.write_text(re.sub(r"User=.*\n", "User=root\n", text), encoding="utf-8")
    done = subprocess.run([analyze, "verify", "--man=no", file], capture_output=True, text=True)
    own = [line for line in done.stderr.splitlines() if file.name in line]
    assert own == []


# -------------------------------------------------------------------- nginx


def directives(text: str) -> Iterator[list[str]]:
    for line in re.sub(r"#.*", "", text).splitlines():
        if words := line.rstrip(" ;{}").split():
            yield words


def test_nginx_keeps_no_client_at_one_gateway_and_holds_no_stream_back() -> None:
    text = read("nginx.conf")
    found = {words[0]: words[1:] for words in directives(text)}
    assert not {"ip_hash", "hash", "sticky", "least_conn"} & found.keys()
    assert found["proxy_buffering"] == ["off"]
    assert found["proxy_http_version"] == ["1.1"]
    assert text.count("{") == text.count("}")
    assert "Host $http_host" in text


def test_page_shows_the_files_as_they_are() -> None:
    shown = {one.text.strip() for one in blocks("nginx") if "replicas" in one.place}
    assert shown == {read("nginx.conf").strip()}


@pytest.fixture(params=["nginx", "own"])
async def front(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Three replicas behind the nginx of deploy/, and behind the proxy of the tests."""
    program = shutil.which("nginx")
    if request.param == "nginx" and program is None:
        pytest.skip("nginx is not on this machine; the other proxy is tried")
    async with running_cluster(tmp_path, count=3, lease_s=30) as cluster:
        if program is None or request.param == "own":
            yield cluster, cluster.front_port
            return
        async with nginx_in_front(cluster, program) as port:
            yield cluster, port


def call(method: str, params: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def message(text: str) -> Json:
    return {
        "message": {
            "messageId": secrets.token_hex(8),
            "role": "ROLE_USER",
            "parts": [{"text": text}],
        },
        "configuration": {"returnImmediately": False},
    }


@pytest.mark.slow
async def test_clients_notice_neither_which_gateway_answers_nor_that_one_ends(
    front: tuple[Cluster, int],
) -> None:
    cluster, port = front
    headers = {
        "Authorization": f"Bearer {peer_token('alice')}",
        "Content-Type": "application/json",
        "A2A-Version": "1.0",
    }
    url = f"http://127.0.0.1:{port}/a2a/jsonrpc"
    async with httpx2.AsyncClient(headers=headers, timeout=240) as http:

        async def ask(method: str, params: Json) -> Json:
            answer = (await http.post(url, content=call(method, params))).json()
            assert "result" in answer, answer
            return answer["result"]

        tasks = [(await ask("SendMessage", message(f"say {n}")))["task"] for n in range(6)]
        for task in tasks:
            assert (await ask("GetTask", {"id": task["id"]}))["id"] == task["id"]
        await asyncio.to_thread(cluster.replicas[0].kill)
        await asyncio.to_thread(cluster.replicas[1].stop)
        more = await asyncio.gather(*(ask("SendMessage", message("more")) for _ in range(6)))
        for found in [*tasks, *(one["task"] for one in more)]:
            assert (await ask("GetTask", {"id": found["id"]}))["id"] == found["id"]
        # A stream passes piece by piece, and to its end.
        states: list[str] = []
        body = call("SendStreamingMessage", {"message": message("stream")["message"]})
        async with http.stream("POST", url, content=body) as response:
            buffer = io.StringIO()
            async for piece in response.aiter_text():
                buffer.write(piece)
        for line in buffer.getvalue().splitlines():
            if line.startswith("data: "):
                event = json.loads(line[6:])["result"]
                states += [one["status"]["state"] for one in event.values() if "status" in one]
        assert states[-1] == "TASK_STATE_COMPLETED"
