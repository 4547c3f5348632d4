"""Entry points and health checks of the containers. Each imports only what it needs."""
