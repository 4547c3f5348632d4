"""Create a test CA, read certificates, make a client's TLS context, and explain why TLS with a server fails.

``trust`` needs only the standard library; the other modules need ``cryptography``. ``fairlead.local.certificates``
keeps the files.
"""
