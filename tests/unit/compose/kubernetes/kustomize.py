"""What ``kubectl kustomize`` does, as far as ``kubernetes/`` uses it, so that no program is needed to check manifests.

Resources, a namespace, config maps from literals and files, and JSON patches. Anything else in a kustomization is an
error. A test compares it with the real one where that is installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

Manifest = dict[str, Any]

_CLUSTER_WIDE: Final = {"Namespace"}
_KNOWN: Final = {
    "apiVersion",
    "kind",
    "namespace",
    "resources",
    "generatorOptions",
    "configMapGenerator",
    "patches",
}


def render(folder: Path) -> list[Manifest]:
    """All manifests of a kustomization.

    Raises:
        ValueError: it uses something else, or a patch fits nothing.
    """
    plan = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    if unknown := plan.keys() - _KNOWN:
        raise ValueError(f"{folder}: {', '.join(unknown)}")
    found: list[Manifest] = []
    for name in plan["resources"]:
        path = folder / name
        found += render(path) if path.is_dir() else yaml.safe_load_all(path.read_text(encoding="utf-8"))
    found += [_config_map(folder, each) for each in plan.get("configMapGenerator", ())]
    for each in plan.get("patches", ()):
        _patch(found, each)
    if "namespace" in plan:
        for manifest in found:
            if manifest["kind"] not in _CLUSTER_WIDE:
                manifest["metadata"]["namespace"] = plan["namespace"]
    return found


def _config_map(folder: Path, each: Manifest) -> Manifest:
    data = dict(literal.split("=", 1) for literal in each.get("literals", ()))
    data |= {name: (folder / name).read_text(encoding="utf-8") for name in each.get("files", ())}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each["name"]}, "data": data}


def _patch(manifests: Iterable[Manifest], each: Manifest) -> None:
    target = each["target"]
    fitting = [m for m in manifests if m["kind"] == target["kind"] and m["metadata"]["name"] == target["name"]]
    if len(fitting) != 1:
        raise ValueError(f"a patch of {target} fits {len(fitting)} manifests")
    for step in yaml.safe_load(each["patch"]):
        *way, last = step["path"].strip("/").split("/")
        place: Any = fitting[0]
        for part in way:
            place = place[int(part) if isinstance(place, list) else part]
        if (step["op"] == "add") == (last in place):
            raise ValueError(f"{step['op']} {step['path']} does not fit {target}")
        if step["op"] == "remove":
            del place[last]
        else:
            place[last] = step["value"]
