"""Fuzzing of everything that reads bytes of others: ``make fuzz``. pytest tries the targets with their seeds."""
