"""What those who work on Fairlead run by hand or through make. Nothing of it is in the wheel."""
