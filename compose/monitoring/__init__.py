"""Prometheus' alert rules, Grafana's dashboard and what tells Grafana of it: files, shipped as they are."""
