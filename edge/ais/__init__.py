"""The ship's position from an AIS receiver.

In: NMEA sentences over TCP or UDP. Out: positions, as if they had come by MQTT. Open ``feed`` first; ``decoder`` is
pure.
"""
