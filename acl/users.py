"""SCRAM users of clusters that Fairlead did not start: made where missing, passwords from the environment only.

Sites that ``fairlead up`` starts have their users from the beginning. A password never stands in a file, a plan or a
command line here; existing users are left as they are, because a cluster does not tell what their password is.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    UserScramCredentialAlteration,
)

from acl.entries import UserChange, noting, stamp
from acl.history import note
from acl.kafka import Client, NotAuthorised, translate
from fairlead.admin import kafka_error
from fairlead.errors import ConfigurationError
from fairlead.scram import credential
from topologies.directory import Directory
from topologies.model import Topology
from topologies.users import ADMIN, service_users


def create_missing(topology: Topology, directory: Directory, site: str) -> tuple[str, ...]:
    """Make the SCRAM-SHA-512 users that a site outside this machine should have and has not; returns their names.

    Raises:
        ConfigurationError: the site is local, or a missing user has no password in the environment (nobody is made).
        NotAuthorised: the administrator may not describe or alter the cluster.
    """
    if topology.sites[site].is_local:
        raise ConfigurationError(f"{site} is started on this machine, its users are made by fairlead up", site=site)
    wanted = service_users(topology, site)
    with Client(directory.kafka(site, ADMIN)) as client:
        if {"DESCRIBE", "ALTER"} - client.cluster_operations():
            # Asking for users without DESCRIBE kills the process in confluent-kafka 2.16.1, so it is never tried.
            raise NotAuthorised(
                f"user {ADMIN!r} may not manage users at site {site}",
                hint="it needs DESCRIBE and ALTER on the cluster",
                site=site,
            )
        missing = sorted(set(wanted) - existing(client, list(wanted)))
        passwords = {user: directory.kafka(site, user).password for user in missing}
        changes: list[UserScramCredentialAlteration] = [
            credential(user, password) for user, password in passwords.items() if password is not None
        ]
        if changes:
            common = stamp(topology.name, site)
            intent = [UserChange(**common, user=user, action="create") for user in missing]
            with noting(partial(note, client.endpoint), *intent):
                for user, future in client.admin.alter_user_scram_credentials(changes).items():
                    client.wait(future, f"creating user {user}")
    return tuple(missing)


def existing(client: Client, users: list[str]) -> set[str]:
    """Those of the users that the cluster has SCRAM credentials of."""
    futures = client.admin.describe_user_scram_credentials(users, request_timeout=client.timeout)
    found = set()
    for user, future in futures.items():
        try:
            cast("Future[Any]", future).result(timeout=client.timeout + 2)
            found.add(user)
        except KafkaException as problem:
            error = kafka_error(problem)
            if error.code() != KafkaError.RESOURCE_NOT_FOUND:
                raise translate(error, client.endpoint, "asking for users") from None
    return found
