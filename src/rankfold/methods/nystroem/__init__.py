"""Features of rows whose products approximate a kernel function, by similarities to a few landmarks.

arguments   types, defaults and limits of the arguments
request     parameters, checked
landmarks   choice of rows as landmarks: uniform, or by randomly pivoted Cholesky
pivots      one pass that proposes rows as landmarks (pivots of the Cholesky factorization)
sampled     error of products of features as similarities, on pairs of sampled rows
nystroem    the tasks, and their plan
new_rows    features of new rows
"""
