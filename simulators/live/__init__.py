"""Show a running voyage in the terminal: ``gather`` collects its state, ``screen`` draws it, ``chart`` is the map."""
