"""What containers run at their start, and how their health is asked. Light: only what each needs is imported."""
