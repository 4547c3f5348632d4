"""Prometheus' alert rules, Grafana's dashboard and Grafana's provisioning: files that are copied unchanged."""
