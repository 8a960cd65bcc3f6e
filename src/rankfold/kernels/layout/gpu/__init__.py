"""Device bodies of layouts."""
