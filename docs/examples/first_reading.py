"""A container comes in at Tokyo and reports once: published as the terminal, and as the box itself.

Usage: python first_reading.py PORT passwords.csv
"""

import csv
import datetime as dt
import json
import sys
from pathlib import Path

import paho.mqtt.client as mqtt

BOX = "BIGU1000010"


def publish(port: int, user: str, password: str, topic: str, message: dict) -> None:
    """Send one message with QoS 1; returns when the broker has it."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.username_pw_set(user, password)
    client.connect("127.0.0.1", port)
    client.loop_start()
    client.publish(topic, json.dumps(message), qos=1).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


port, file = int(sys.argv[1]), Path(sys.argv[2])
passwords = dict(csv.reader(file.read_text().splitlines()))
began = dt.datetime.now(dt.UTC)
now = began.isoformat()
gate_in = {
    "metadata": {"eventID": f"in-{now}", "eventCreatedDateTime": now, "eventType": "EQUIPMENT", "publisher": "me"},
    "payload": {
        "eventDateTime": now,
        "equipmentEventTypeCode": "GTIN",
        "equipmentReference": BOX,
        "UNLocationCode": "JPTYO",
    },
}
reading = {
    "equipmentReference": BOX,
    "device": {"deviceId": BOX, "bootId": int(began.timestamp()), "sequence": 0, "deviceDateTime": now},
    "measurements": {"supplyTemperature": 18.0, "returnTemperature": 18.6},
    "setpoints": {"temperature": 18.0},
}
publish(port, "terminal-tokyo", passwords["terminal-tokyo"], "fairlead/v1/events", gate_in)
publish(port, BOX, passwords[BOX], f"fairlead/v1/containers/{BOX}/readings", reading)
