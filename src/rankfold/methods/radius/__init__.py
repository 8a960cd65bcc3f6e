"""All neighbors within a radius, exactly.

arguments   types, defaults and limits of the arguments
request     parameters of a search, checked
radius      the task: from a request to a result; number of edges, estimated from a sample of rows; count
            the neighbors of each row, and list them: the work on each panel (rows at a time)
"""
