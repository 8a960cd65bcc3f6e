"""Queue systems that accept worker jobs: one module for each, with the functions of ``system``."""
