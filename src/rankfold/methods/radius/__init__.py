"""All neighbors within a radius, exactly.

arguments   types, defaults and limits of the arguments
request     parameters of a search, checked
estimate    how many edges there will be, from a sample of rows
folds       how many neighbors each row has, and which
radius      from a request to a result
warm        compiled loops, run once
"""
