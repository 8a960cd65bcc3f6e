"""Device bodies of neighbor searches."""
