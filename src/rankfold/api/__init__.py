"""The public functions, and ``execute``, which joins a task and an executor.

functions    the public functions by kind: svd, knn, umap and others
matrices     open, import_array
execute      plan, claim, run, publish: the same for every task
finished     checks whether an output already holds the requested result
identity     differences between a finished result and a request
call         plan; the functions of methods of other packages
where        arguments for place and resources, which all functions take
arguments    checks of the arguments of callers in Python
docstrings   completes docstrings with arguments that many functions share
"""
