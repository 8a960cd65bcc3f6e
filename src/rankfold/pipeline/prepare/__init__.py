"""Steps that make a matrix of raw data, as it is read and never written.

steps      what each step does to numbers, and how it is said
prepared   a matrix whose numbers go through steps whenever they are read
"""
