"""The board: who may see what, sessions, sign-in, and what its pages are made from."""
