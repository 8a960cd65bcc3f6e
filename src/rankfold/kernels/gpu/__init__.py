"""What device bodies of all families share."""
