"""Features of rows whose products approximate a kernel function, by similarities to a few landmarks.

arguments   types, defaults and limits of the arguments
request     parameters, checked
landmarks   choice of rows as landmarks: uniform, or by randomly pivoted Cholesky; one pass that proposes
            rows as landmarks (pivots of the Cholesky factorization)
nystroem    the tasks, and their plan; error of products of features as similarities, on pairs of sampled
            rows
new_rows    features of new rows
"""
