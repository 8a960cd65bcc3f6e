"""How well an embedding keeps neighborhoods.

trust_request     what is asked, checked
trust_plan        how many rows are held at once
trustworthiness   from ranks of neighbors to a measure
neighbor_ranks    how many rows are nearer than given ones, and where those are
"""
