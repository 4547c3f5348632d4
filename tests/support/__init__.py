"""Tools that tests of several kinds share."""
