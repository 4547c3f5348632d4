"""A voyage in the terminal while it runs: ``gather`` collects what happens, ``screen`` draws, ``chart`` is the map."""
