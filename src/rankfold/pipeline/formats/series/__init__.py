"""Files that come one after another, as one matrix.

series   rows of several sources, one below the other
"""
