"""Fuzzing of everything that reads bytes of others: ``make fuzz``. Not collected by pytest."""
