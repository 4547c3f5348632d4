"""What access costs: planning for many customers, applying many rules, and what the number of rules grows with."""
