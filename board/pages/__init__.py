"""The pages, one module each: its functions, and the list ``PAGES`` of what it answers and to whom."""
