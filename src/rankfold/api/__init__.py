"""The public functions, and ``execute``, which joins a task and an executor.

functions    what callers call, by kind: svd, knn, umap and others
matrices     open, import_array
execute      plan, claim, run, publish: the same for every task
finished     whether an output is the finished answer already
identity     in what a finished result differs from what is asked
call         plan; the functions of methods of other packages
where        arguments of where and how, which all functions take
arguments    what callers in Python say, checked before it means anything
docstrings   what docstrings say of arguments that many share
"""
