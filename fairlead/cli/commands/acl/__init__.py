"""``fairlead acl``: who may do what with which topic. Open ``app`` first."""
