"""One turn of an MQTT client's network loop, for whoever drives it by hand."""

from __future__ import annotations

import select

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode


def turn(client: paho.Client, seconds: float) -> MQTTErrorCode:
    """As ``Client.loop`` of a client without a thread: wait so long at most, then read or write what there is.

    That one waits by ``select``, which takes no file descriptor from 1024 on: in a process with many open files or
    connections a broker seemed to be away that was not (paho 2.2).
    """
    sock = client.socket()
    if sock is None:
        return MQTTErrorCode.MQTT_ERR_NO_CONN
    waiting = select.poll()
    waiting.register(sock, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
    decrypted = getattr(sock, "pending", int)()  # what TLS has read already shows in no poll
    events = waiting.poll(0 if decrypted else seconds * 1000)
    ready = events[0][1] if events else 0
    if decrypted or ready & ~select.POLLOUT:
        done = client.loop_read()
        if done != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return done
    if ready & select.POLLOUT:
        done = client.loop_write()
        if done != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return done
    return client.loop_misc()
