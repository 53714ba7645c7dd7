"""What is shipped for servers: Compose, images, Kubernetes and automations hold together, and hold no secret."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from os.path import normpath
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.events.schemas.automations import AutomationCore
from prefect.server.schemas.actions import validate_base_job_template
from prefect.utilities.templating import apply_values

from earmark.flows.command.serving import HEARTBEAT_S
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (DEPLOY / "images/earmark.Dockerfile").read_text("utf-8")


def placeholders(value: Any) -> set[str]:
    """Names in `{{ }}` anywhere in a template."""
    return set(re.findall(r"{{ (\w+) }}", json.dumps(value)))


def test_every_service_that_stays_is_watched() -> None:
    stays = {name for name, service in SERVICES.items() if service.get("restart") != "no"}
    assert stays == {"postgres", "server", "worker", "metrics", "vllm"}
    assert {name for name in stays if "healthcheck" not in SERVICES[name]} == set()


def test_services_wait_for_services_that_are_there() -> None:
    for service in SERVICES.values():
        for name, on in service.get("depends_on", {}).items():
            assert name in SERVICES
            if on["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[name]


def test_volumes_and_files_are_there() -> None:
    named = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    plain = {name for name in named if "/" not in name and "$" not in name}
    assert plain <= set(COMPOSE["volumes"])
    build = SERVICES["worker"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / path).exists() for path in line.split())
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = {path for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE) for path in line.split()}
    assert {f"!{path}" for path in copied} <= set(ignored)


def mounted(service: dict[str, Any]) -> dict[str, str]:
    """What a service mounts: folders of the container, and whether they are read only (`ro`)."""
    found = (re.sub(r"\$\{[^}]*\}", "host", volume).split(":") for volume in service.get("volumes", []))
    return {target: (how or ["rw"])[0] for _, target, *how in found}


def test_paths_of_deployments_and_configs_are_what_containers_mount() -> None:
    (image,) = re.findall(r"^WORKDIR (\S+)$", DOCKERFILE, re.MULTILINE)
    copied = {target for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE) for target in line.split()[1:]}
    for name in ("deploy", "worker", "metrics"):
        mounts = mounted(SERVICES[name])
        (store,) = re.findall(r"EARMARK_STORE=(\S+)", DOCKERFILE)
        assert mounts[store] == "rw"
        assert mounts[f"{image}/corpora"] == "ro"
    for deployment in yaml.safe_load((DEPLOY / "prefect.yaml").read_text("utf-8"))["deployments"]:
        values = deployment.get("parameters", {})
        assert normpath(f"{image}/{values.get('store', 'data/store')}") == store
        if base := values.get("config", {}).get("base"):
            assert base in copied, f"{deployment['entrypoint']}: the image has no {base}"
    for config in (DEPLOY / "configs").glob("*.toml"):
        reads = set(re.findall(r'"((?:\.\./)+[^"]*)"', config.read_text("utf-8")))
        for path in reads:
            inside = normpath(f"{image}/deploy/configs/{path}")
            assert inside.startswith((f"{image}/corpora", f"{image}/data/demo", store)), f"{config.name}: {path}"
    variables = json.loads((DEPLOY / "kubernetes.json").read_text("utf-8"))["job_configuration"]["job_manifest"]
    (container,) = variables["spec"]["template"]["spec"]["containers"]
    assert store in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_secrets_come_from_the_environment() -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    for name in ("POSTGRES_PASSWORD", "PREFECT_API_AUTH_STRING", "OPENAI_API_KEY", "EARMARK_KEY_HOSTS", "HF_TOKEN"):
        assert re.search(rf"\${{{name}(:[-?][^}}]*)?}}", text)
        assert f"{name}=\n" in (DEPLOY / "example.env").read_text("utf-8")
    assert "deploy/.env" in (ROOT / ".gitignore").read_text("utf-8").split()


def test_the_server_asks_for_a_password_that_the_others_have() -> None:
    server = SERVICES["server"]["environment"]
    password = server["PREFECT_SERVER_API_AUTH_STRING"]
    assert password.startswith("${PREFECT_API_AUTH_STRING:?")  # Compose starts nothing without it
    origins = server["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"].split(",")
    assert origins == ["http://127.0.0.1:4200", "http://localhost:4200"]
    for name in ("deploy", "worker", "metrics"):
        assert SERVICES[name]["environment"]["PREFECT_API_AUTH_STRING"] == password
    assert SERVICES["metrics"]["environment"]["EARMARK_METRICS_HOSTS"] == "metrics"
    (roots,) = re.findall(r"EARMARK_ROOTS=(\S+)", DOCKERFILE)
    assert all(target.startswith(f"{roots}/") for target in mounted(SERVICES["worker"]))
    template = json.loads((DEPLOY / "kubernetes.json").read_text("utf-8"))
    (container,) = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "{{ secret }}"}}]
    assert "PREFECT_API_AUTH_STRING" in template["variables"]["properties"]["secret"]["description"]


def test_nothing_listens_to_the_world() -> None:
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", []))
    assert re.search(r"^USER earmark$", DOCKERFILE, re.MULTILINE)


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode != 0,
    reason="docker compose is not installed",
)
def test_compose_reads_it() -> None:
    command = ["docker", "compose", "-f", str(DEPLOY / "compose.yaml"), "--profile", "gpu", "config", "--quiet"]
    subprocess.run(command, check=True, env={"POSTGRES_PASSWORD": "x", "PATH": "/usr/local/bin:/usr/bin:/bin"})


def test_kubernetes_template_is_what_prefect_takes() -> None:
    template = json.loads((DEPLOY / "kubernetes.json").read_text("utf-8"))
    assert validate_base_job_template(template) == template
    variables = template["variables"]["properties"]
    assert placeholders(template["job_configuration"]) == set(variables)
    assert all(variable["description"] for variable in variables.values())
    manifest = template["job_configuration"]["job_manifest"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "Job")
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "prefect-job"
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in manifest["spec"]["template"]["spec"]["volumes"]
    }


def test_systemd_stops_the_command_alone() -> None:
    """Its default signals Prefect's server at once with the runs, which then cannot report their end."""
    (unit,) = re.findall(r"^```ini\n(.*?)^```", (ROOT / "flows/command/schedule.md").read_text("utf-8"), re.M | re.S)
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(unit)
    assert parsed["Service"]["ExecStart"].endswith(" serve")
    assert parsed["Service"]["KillMode"] == "mixed"


def test_jobs_of_several_nodes_write_no_common_file_of_sqlite() -> None:
    template = json.loads((DEPLOY / "kubernetes.json").read_text("utf-8"))
    (container,) = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"]
    index = template["variables"]["properties"]["env"]["default"]["EARMARK_MEDIA_INDEX"]
    assert re.search(r"useradd --create-home --uid 1000 earmark\b", DOCKERFILE)
    assert index.startswith("/home/earmark/")
    assert not any(index.startswith(mount["mountPath"]) for mount in container["volumeMounts"])


def complaint(folder: Path, package: str, code: str, value: Any) -> str:
    """Return a package's complaint about a value; fetch it for this test, which an index without it skips."""
    uv = shutil.which("uv", path=Path(sys.executable).parent) or shutil.which("uv")
    if uv is None:
        pytest.skip("no uv; `make setup` installs it")
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder), package]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=240)
    if fetched.returncode:
        pytest.skip(f"uv could not fetch {package}: {fetched.stderr.strip().splitlines()[-1]}")
    words, given = [sys.executable, "-c", code], json.dumps(value)
    path = {"PYTHONPATH": str(folder)}
    return subprocess.run(words, input=given, capture_output=True, text=True, timeout=60, env=path).stderr


@pytest.mark.slow
def test_compose_keeps_to_its_specification(tmp_path: Path) -> None:
    """By `compose-spec` (MIT or Apache-2.0): a parser that knows every key, newer than the schemas in packages."""
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    filled = re.sub(r"\$\{\w+(?::-([^}]*)|:\?[^}]*)?\}", lambda variable: variable[1] or "x", text)
    compose = yaml.safe_load(filled)
    check = (tmp_path, "compose-spec==0.2.1", "import sys, compose_spec as c; c.PyCompose.from_json(sys.stdin.read())")
    assert complaint(*check, compose) == ""
    compose["services"]["worker"]["restarts"] = "no"
    assert "restarts" in complaint(*check, compose)


@pytest.mark.slow
def test_the_kubernetes_job_keeps_to_the_schema_of_kubernetes(tmp_path: Path) -> None:
    """As Prefect's worker fills the template, by the strict schemas of `kubernetes-validate` (Apache-2.0)."""
    template = json.loads((DEPLOY / "kubernetes.json").read_text("utf-8"))
    variables = template["variables"]["properties"]
    values = {name: one["default"] for name, one in variables.items() if "default" in one}
    values |= {"command": ["prefect", "flow-run", "execute"], "env": [{"name": "EARMARK_ROOTS", "value": "/earmark"}]}
    job = apply_values(template["job_configuration"]["job_manifest"], values)
    code = "import json, sys, kubernetes_validate as k; k.validate(json.load(sys.stdin), '1.37', strict=True)"
    check = (tmp_path, "kubernetes-validate==1.37.0", code)
    assert complaint(*check, job) == ""
    job["spec"]["backofLimit"] = 0
    assert "backofLimit" in complaint(*check, job)


def test_automations_fit_prefects_schema_and_the_heartbeat() -> None:
    held = yaml.safe_load((DEPLOY / "automations.yaml").read_text("utf-8"))["automations"]
    (crashed,) = [AutomationCore.model_validate(one) for one in held]
    assert crashed.trigger.within.total_seconds() >= 3 * HEARTBEAT_S  # type: ignore[union-attr]
    assert f"PREFECT_FLOWS_HEARTBEAT_FREQUENCY={HEARTBEAT_S}" in DOCKERFILE
