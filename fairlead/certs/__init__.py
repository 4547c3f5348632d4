"""Certificates: a test CA, what a certificate says, whom a client trusts, and why it does not trust a server.

``trust`` needs only the standard library, so clients that never speak TLS load nothing; the others need
``cryptography``. What is kept on disk is in ``fairlead.local.certificates``.
"""
