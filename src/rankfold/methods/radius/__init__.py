"""All neighbors within a radius, exactly.

arguments   types, defaults and limits of the arguments
request     parameters of a search, checked
estimate    number of edges, estimated from a sample of rows
folds       count the neighbors of each row, and list them: the work on each panel (rows at a time)
radius      the task: from a request to a result
"""
