"""``fairlead acl``: show and apply the users' permissions on topics. Open ``app`` first."""
