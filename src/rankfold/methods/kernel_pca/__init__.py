"""Principal components of rows in the space of a kernel function, without the matrix of all pairs.

arguments    types, defaults and limits of the arguments
request      parameters, checked
eigenpairs   leading eigenpairs of the centered matrix of similarities: by Lanczos, or for few rows by LAPACK
kernel_pca   the task, and its plan; memory and passes that a plan counts
new_rows     scores of new rows
"""
