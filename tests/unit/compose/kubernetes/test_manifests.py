"""The manifests in ``kubernetes/``: they fit the schemas of Kubernetes and Strimzi, and what Fairlead needs of a site.

Nothing here has seen a cluster: docs/kubernetes.md says so.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from jsonschema import Draft7Validator

from tests.support.commands import commands, options
from tests.unit.compose.kubernetes.kustomize import Manifest, render
from tests.unit.compose.kubernetes.strimzi import schema
from topologies.loader.load import load
from topologies.users import service_users

FOLDER = Path(__file__).parents[4] / "compose" / "kubernetes"
SITES = ("tokyo", "duck-star")
KUBERNETES = "1.34"
MAX_INT = 2**31 - 1


@cache
def manifests(site: str) -> list[Manifest]:
    return render(FOLDER / "sites" / site)


def mistakes(manifest: Manifest) -> list[str]:
    """Whatever of a manifest its schema does not allow."""
    if manifest["apiVersion"].startswith("kafka.strimzi.io/"):
        found = Draft7Validator(schema(manifest["kind"])).iter_errors(manifest)
        return [f"{error.json_path}: {error.message}" for error in found]
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [str(error.message)]
    return []


def one(found: list[Manifest], kind: str, name: str) -> Manifest:
    (manifest,) = [each for each in found if each["kind"] == kind and each["metadata"]["name"] == name]
    return manifest


def pods(found: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for each in found:
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield each["metadata"]["name"], each["spec"]["template"]


EVERY = [
    pytest.param(each, id=f"{site}-{each['kind']}-{each['metadata']['name']}")
    for site in SITES
    for each in manifests(site)
]


@pytest.mark.parametrize("manifest", EVERY)
def test_a_manifest_fits_its_schema(manifest: Manifest) -> None:
    assert mistakes(manifest) == []


@pytest.mark.parametrize(
    ("kind", "name", "path", "value"),
    [
        ("Deployment", "bridge", "spec/replica", 1),
        ("Deployment", "board", "spec/template/spec/containers/0/readinessProbe/httpGet/schema", "HTTPS"),
        ("Deployment", "notify", "spec/template/spec/volumes/0/configMaps", {"name": "topology"}),
        ("Deployment", "bridge", "spec/template/spec/containers/0/resources/limits/memory", ["512Mi"]),
        ("Deployment", "bridge", "spec/template/spec/containers/0/securityContext/readOnlyRootFileSystem", True),
        ("NetworkPolicy", "to-kafka", "spec/egres", []),
        ("Kafka", "kafka", "spec/kafka/listeners/0/type", "intern"),
        ("Kafka", "kafka", "spec/kafka/listeners/0/authentication/type", "scram-sha-256"),
        ("Kafka", "kafka", "spec/kafka/authorisation", {"type": "simple"}),
        ("Kafka", "kafka", "spec/kafka/metricsConfig/values/allowlist", []),
        ("Kafka", "kafka", "spec/entityOperator/template/userOperatorContainer/environment", []),
        ("KafkaNodePool", "broker", "spec/roles/0", "zookeeper"),
        ("KafkaNodePool", "broker", "spec/storage/volumes/0/sizes", "1Gi"),
        ("KafkaUser", "admin", "spec/authentication/type", "scram"),
    ],
)
def test_a_planted_mistake_is_found(kind: str, name: str, path: str, value: object) -> None:
    manifest = copy.deepcopy(one(manifests("tokyo"), kind, name))
    *way, last = path.split("/")
    place: Any = manifest
    for part in way:
        place = place[int(part) if isinstance(place, list) else part]
    place[int(last) if isinstance(place, list) else last] = value
    assert mistakes(manifest)


@pytest.mark.parametrize("site", SITES)
def test_pods_have_no_privileges(site: str) -> None:
    for name, pod in pods(manifests(site)):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        for container in spec["containers"]:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] and not own["allowPrivilegeEscalation"], name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
            assert "memory" in container["resources"]["limits"], name
            mounted = {each["name"] for each in container["volumeMounts"]}
            there = {each["name"] for each in spec["volumes"]}
            claims = {"data"} if name == "mosquitto" else set()
            assert mounted == there | claims, name
            writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
            assert "/tmp" in writable and not writable & {"/etc/fairlead", "/run/secrets", "/run/certificates"}  # noqa: S108


@pytest.mark.parametrize("site", SITES)
def test_pods_have_probes_and_limits(site: str) -> None:
    for name, pod in pods(manifests(site)):
        for container in pod["spec"]["containers"]:
            if name != "access":  # which ends
                assert "livenessProbe" in container, name
            if name not in ("access", "shore"):
                assert "readinessProbe" in container, name


@pytest.mark.parametrize("site", SITES)
def test_passwords_are_references(site: str) -> None:
    found = manifests(site)
    assert not [each for each in found if each["kind"] == "Secret"]
    topology = load(FOLDER / "sites" / site / "minimal.yaml", env={})
    assert topology.secret(site, "admin") is None
    key = one(found, "KafkaUser", "admin")["spec"]["authentication"]["password"]["valueFrom"]["secretKeyRef"]["key"]
    assert key == f"{site}.admin"
    assert {"bridge", "replicator"} <= service_users(topology, site).keys()


@pytest.mark.parametrize("site", SITES)
def test_arguments_are_those_of_the_command_line(site: str) -> None:
    known = {name: set(options(command)) for name, command in commands()}
    seen = set()
    for _, pod in pods(manifests(site)):
        for container in pod["spec"]["containers"]:
            if "args" not in container:
                continue
            words = [str(word) for word in container["args"]]
            name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
            seen.add(name)
            assert {word for word in words if word.startswith("--")} <= known[name], name
    at_one_site = {"shore run", "board", "notify run"} if site == "tokyo" else set()
    assert seen == {"bridge", "replicate", "acl apply"} | at_one_site


@pytest.mark.parametrize("site", SITES)
def test_programs_of_the_image_are_there(site: str) -> None:
    """What containers and probes start beside the command line: modules of ``compose``, which the image has."""
    text = json.dumps([pod for _, pod in pods(manifests(site))])
    found = set(re.findall(r"-m\W+(compose[.\w]+)", text))
    assert found == {"compose.entry.mqtt", "compose.entry.healthcheck"}
    assert all(importlib.util.find_spec(module) for module in found)


@pytest.mark.parametrize("site", SITES)
def test_the_image_is_of_this_version(site: str) -> None:
    text = (FOLDER.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    version = text.partition('\nversion = "')[2].partition('"')[0]
    images = {container["image"] for _, pod in pods(manifests(site)) for container in pod["spec"]["containers"]}
    assert {image.partition(":")[2] for image in images} == {version}


@pytest.mark.parametrize("site", SITES)
def test_the_topology_is_right_and_says_where_this_site_is(site: str) -> None:
    topology = load(FOLDER / "sites" / site / "minimal.yaml", env={})
    shipped = load("minimal", env={})
    assert topology.links == shipped.links and topology.sites.keys() == shipped.sites.keys()
    kafka, mqtt = topology.sites[site].kafka, topology.sites[site].mqtt
    assert kafka is not None and kafka.bootstrap == f"kafka-kafka-bootstrap.fairlead-{site}.svc:9093"
    assert mqtt is not None and mqtt.host == f"mosquitto.fairlead-{site}.svc"
    assert all(each.kafka is not None and each.kafka.security == "SASL_SSL" for each in topology.sites.values())


@pytest.mark.parametrize(("site", "brokers"), [("tokyo", 3), ("duck-star", 1)])
def test_kafka_is_what_a_target_must_be(site: str, brokers: int) -> None:
    """docs/foreign-clusters.md, settings of a target."""
    found = manifests(site)
    spec = one(found, "Kafka", "kafka")["spec"]
    config = spec["kafka"]["config"]
    assert one(found, "KafkaNodePool", "broker")["spec"]["replicas"] == brokers
    in_sync = 2 if brokers == 3 else 1
    assert {value for key, value in config.items() if key.endswith("replication.factor")} == {brokers}
    assert {value for key, value in config.items() if key.endswith(("min.isr", "min.insync.replicas"))} == {in_sync}
    for setting in ("producer.id.expiration.ms", "producer.id.expiration.check.interval.ms"):
        assert config[setting] == MAX_INT
    assert config["unclean.leader.election.enable"] is False and config["auto.create.topics.enable"] is False
    assert config["allow.everyone.if.no.acl.found"] is False and config["log.retention.ms"] == -1
    assert config["socket.request.max.bytes"] >= 16 << 20
    assert config["connections.max.reauth.ms"] == 600_000  # as at sites of fairlead up
    for setting in ("log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms"):
        assert config[setting] == str(2**63 - 1)  # as a number, a JSON patch of kustomize makes it 9223372036854776000
    assert spec["kafka"]["authorization"] == {"type": "simple", "superUsers": ["admin"]}
    for listener in spec["kafka"]["listeners"]:
        assert listener["tls"] and listener["authentication"] == {"type": "scram-sha-512"}


def test_strimzis_user_operator_leaves_fairleads_users_alone() -> None:
    """It deletes users and rules without a KafkaUser, but for those whose whole name its pattern matches."""
    container = one(manifests("tokyo"), "Kafka", "kafka")["spec"]["entityOperator"]["template"]["userOperatorContainer"]
    (setting,) = container["env"]
    assert setting["name"] == "STRIMZI_IGNORED_USERS_PATTERN"
    pattern = re.compile(setting["value"])
    assert pattern.fullmatch("admin") is None
    topology = load("big-blue", env={})
    for site in topology.sites:
        assert all(pattern.fullmatch(user) for user in service_users(topology, site))
    assert pattern.fullmatch("administrator")


@pytest.mark.parametrize(("site", "replicators"), [("tokyo", 2), ("duck-star", 1)])
def test_a_site_has_one_bridge_and_replicators_that_share_the_work(site: str, replicators: int) -> None:
    """Without a group, two replicators would fetch and produce everything twice, and take twice the rate of a link. No
    budget protects what is single: it would block every maintenance."""
    found = manifests(site)
    spec = one(found, "Deployment", "replicator")["spec"]
    assert spec["replicas"] == replicators
    assert "--group" in spec["template"]["spec"]["containers"][0]["args"]
    assert [each for each in found if each["kind"] == "PodDisruptionBudget"] == []
    assert one(found, "Deployment", "bridge")["spec"] | {"template": None, "selector": None} == {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": None,
        "template": None,
    }


def test_the_board_and_notifications_fit_the_topology() -> None:
    found = manifests("tokyo")
    topology = load(FOLDER / "sites" / "tokyo" / "minimal.yaml", env={})
    assert topology.board is not None and topology.board.at == ("tokyo",)
    assert topology.notify is not None and topology.notify.at == "tokyo"
    for name in ("board", "notify"):  # sessions are in one board's memory; two notify would send everything twice
        spec = one(found, "Deployment", name)["spec"]
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
        (container,) = spec["template"]["spec"]["containers"]
        words = [str(word) for word in container["args"]]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert ports["metrics"] == int(words[words.index("--metrics-port") + 1])
        for probe in (container["readinessProbe"], container["livenessProbe"]):
            assert probe["httpGet"]["port"] in ports
    board = one(found, "Deployment", "board")["spec"]["template"]["spec"]
    assert one(found, "Service", "board")["spec"]["ports"][0]["targetPort"] == "https"
    claims = [
        each["persistentVolumeClaim"]["claimName"] for each in board["volumes"] if "persistentVolumeClaim" in each
    ]
    assert claims == ["tables"] and one(found, "PersistentVolumeClaim", "tables")  # it reads what shore writes
    mounts = {each["name"]: each["mountPath"] for each in board["containers"][0]["volumeMounts"]}
    for word in ("tls.crt", "tls.key"):
        assert f"{mounts['tls']}/{word}" in board["containers"][0]["args"]
    assert one(found, "ConfigMap", "site")["data"]["BOARD_NAME"]


@pytest.mark.parametrize("site", SITES)
def test_network_policies_select_existing_pods(site: str) -> None:
    found = manifests(site)
    labels = [pod["metadata"]["labels"] for _, pod in pods(found)]
    for policy in (each for each in found if each["kind"] == "NetworkPolicy"):
        wanted = policy["spec"]["podSelector"]["matchLabels"]
        assert any(wanted.items() <= each.items() for each in labels), policy["metadata"]["name"]
    for _, pod in pods(found):
        assert pod["metadata"]["labels"]["app.kubernetes.io/part-of"] == "fairlead"  # what policy "nothing" selects


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which renders kustomizations, is not installed")
@pytest.mark.parametrize("site", SITES)
def test_kubectl_renders_the_same(site: str) -> None:
    command = ["kubectl", "kustomize", str(FOLDER / "sites" / site)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - our own files
    assert _in_order(yaml.safe_load_all(done.stdout)) == _in_order(manifests(site))


def _in_order(found: Any) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in found)
