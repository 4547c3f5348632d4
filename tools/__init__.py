"""Tools for developers of Fairlead, run by hand or through make. They are not in the wheel."""
