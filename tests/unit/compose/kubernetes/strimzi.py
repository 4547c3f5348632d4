"""Strimzi's own schemas of the kinds that ``kubernetes/`` uses, to check manifests against without a cluster.

``python -m tests.unit.compose.kubernetes.strimzi FOLDER`` makes ``strimzi_crds/`` anew from
``install/cluster-operator`` of a Strimzi release. Only what the tests need is kept: version v1, no descriptions, no
status, no kinds of pods that are not used here, and no inside of Kubernetes' own parts, such as affinity.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).with_name("strimzi_crds")
_FILES: Final = {"Kafka": "040-Crd-kafka", "KafkaUser": "044-Crd-kafkauser", "KafkaNodePool": "045-Crd-kafkanodepool"}
_NOT_USED: Final = {"cruiseControl", "kafkaExporter", "clusterCa", "clientsCa", "jmxOptions", "tieredStorage", "quotas"}
_KUBERNETES: Final = {"affinity", "tolerations", "volumes", "templatedVolumes", "hostAliases", "dnsConfig"}


@cache
def schema(kind: str) -> dict[str, Any]:
    """The schema of a kind, in which a key that it does not know is a mistake."""
    found: dict[str, Any] = json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    closed: dict[str, Any] = _closed(found)
    return closed


def _closed(node: Any) -> Any:
    """With ``additionalProperties: false`` where all properties are known: a cluster drops others without a word."""
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in node.items()}
    known = isinstance(node.get("properties"), dict) and "type" in node
    if known and "additionalProperties" not in node and not node.get("x-kubernetes-preserve-unknown-fields"):
        closed["additionalProperties"] = False
    return closed


def _needed(schema: dict[str, Any], *, of_pods: bool = False) -> dict[str, Any]:
    """What is kept of a schema; ``of_pods``: of a part that Strimzi hands on to pods."""
    kept = {key: value for key, value in schema.items() if key not in ("description", "properties", "items")}
    if "items" in schema:
        kept["items"] = _needed(schema["items"], of_pods=of_pods)
    if "properties" in schema:
        kept["properties"] = {
            name: {"type": each["type"]}
            if of_pods and name in _KUBERNETES
            else _needed(each, of_pods=of_pods or name == "template")
            for name, each in schema["properties"].items()
            if name not in _NOT_USED
        }
    return kept


def _take(folder: Path) -> None:
    for kind, name in _FILES.items():
        crd = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
        versions = {each["name"]: each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"]}
        kept = _needed(versions["v1"])
        del kept["properties"]["status"]
        text = json.dumps(kept, separators=(",", ":"), sort_keys=True)
        (FOLDER / f"{kind}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    _take(Path(sys.argv[1]))
