"""What images are made from."""
