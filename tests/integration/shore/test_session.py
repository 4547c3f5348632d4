"""Spark on one machine can be reached from there only, and only with the secret of this run."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from shore.session import SECRET

pytestmark = pytest.mark.integration


def test_sparks_ports_are_on_loopback_and_ask_for_a_secret_that_ps_does_not_show(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert context.parallelize(range(4), 2).map(lambda n: n * n).sum() == 14  # starts Python workers, too
    gateway: Any = context._gateway  # noqa: SLF001 - there is no public way
    found = [psutil.Process(os.getpid()), psutil.Process(gateway.proc.pid)]
    found += psutil.Process(gateway.proc.pid).children(recursive=True)
    listening, lines = set(), []
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):  # Spark ends idle Python workers
            lines.append(" ".join(process.cmdline()))
            connections = process.net_connections("inet")
            listening |= {each.laddr for each in connections if each.status == psutil.CONN_LISTEN}
    assert len(lines) >= 2
    assert len(listening) >= 2  # the driver's, and its block manager's
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}

    conf: Any = context._jsc.sc().conf()  # noqa: SLF001
    assert (conf.get("spark.authenticate"), conf.get("spark.network.crypto.enabled")) == ("true", "true")
    secret = str(conf.get(SECRET))
    assert len(secret) >= 32
    for line in lines:
        assert secret not in line
