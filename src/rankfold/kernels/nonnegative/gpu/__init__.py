"""Device bodies of nonnegative rows."""
