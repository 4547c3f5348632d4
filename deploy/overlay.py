"""The override that tells a topology where its sites are: in this project's containers. Pure."""

from __future__ import annotations

from typing import Any, Final

from deploy.fleet import CERTIFICATES, Fleet

SPARK_MASTER: Final = "spark://spark-master:7077"


def overlay(fleet: Fleet) -> dict[str, Any]:
    """``<name>.local.yaml`` beside the topology, as data; without a secret."""
    ca = {"ca": f"{CERTIFICATES}/ca.pem"} if fleet.tls else {}
    sites: dict[str, Any] = {}
    for site in fleet.sites:
        kafka = {"bootstrap": site.bootstrap, "security": "SASL_SSL" if fleet.tls else "SASL_PLAINTEXT", **ca}
        sites[site.name] = {"kafka": kafka}
        if site.has_way_in:
            sites[site.name]["mqtt"] = {"host": site.mqtt, "port": fleet.mqtt_port, **ca}
    shore = {"shore": {"master": SPARK_MASTER, "settings": SPARK_SETTINGS}} if fleet.topology.shore else {}
    return {"sites": sites, **shore}


# The driver's container is in several networks: bound to one address, it could not be reached by the others' name.
SPARK_SETTINGS: Final = {
    "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - its own networks
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "4",  # Spark's own 200 are for larger machines than these two cores
    "spark.databricks.delta.snapshotPartitions": "1",
}
