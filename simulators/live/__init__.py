"""A voyage in the terminal while it sails: what is known (``state``), how that looks (``layout``, pure), the screen."""
