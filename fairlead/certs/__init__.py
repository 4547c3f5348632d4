"""Certificates: a small authority for trying out, what a certificate says, whom a client trusts, and why it does not.

``trust`` and ``served`` need only the standard library, so clients that never speak TLS load nothing; the others need
``cryptography``. May import ``fairlead.endpoint`` and ``fairlead.errors``; what is
kept on disk is in ``fairlead.local.certificates``.
"""
