"""Tools that several kinds of tests share."""
