"""What a release consists of: locked packages, notices, the bill of materials, dist/. ``make release`` makes it."""
