"""Tools for tests of ``acl``."""
