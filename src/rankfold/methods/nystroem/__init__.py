"""Features of rows whose products approximate a kernel function, by similarities to a few landmarks.

arguments   types, defaults and limits of the arguments
request     parameters, checked
landmarks   which rows similarities are told by: any, or each likelier the less of it is told yet
pivots      one pass that draws them
sampled     how far products of features are from similarities, on pairs of sampled rows
nystroem    the tasks, and their plan
"""
