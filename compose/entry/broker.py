"""Entry point of a broker's container: format the log directory once, then become Kafka."""

from __future__ import annotations

import os
from pathlib import Path

from compose.entry.files import secret, setting
from compose.settings import DATA, SETTINGS
from fairlead.jars import ensure_jars, find_java
from fairlead.local.cds import archive_options
from fairlead.local.kafka import ADMIN, CONTROLLER, TO_CONSOLE, command, format_if_new

FOLDER = Path("/tmp/kafka")  # noqa: S108 - the container's own


def main() -> None:
    """Format the log directory if it is new, then ``exec`` Java. Options in ``KAFKA_OPTS`` override the others."""
    site, node = setting("SITE"), int(setting("NODE"))
    users = {name: secret(f"{site}.{name}") for name in (ADMIN, CONTROLLER)}
    format_if_new(Path(DATA), setting("CLUSTER_ID"), users, node_id=node)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "log4j2.yaml").write_text(TO_CONSOLE, encoding="utf-8")
    settings = FOLDER / "server.properties"
    settings.unlink(missing_ok=True)
    settings.symlink_to(SETTINGS)
    java, jars = find_java(), ensure_jars("kafka")
    options = (*archive_options(java, jars), *os.environ.get("KAFKA_OPTS", "").split())
    os.chdir(FOLDER)
    os.execv(java, command(java, jars, FOLDER, jvm=options, tls=True))  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
