"""The public functions, and ``execute``, which runs a task (checked call of a method) on workers.

functions        the public functions by kind: svd, knn, umap and others
matrices         open, import_array
execute          plans a task, locks its run folder, runs it and publishes the result
finished         checks whether an output already holds the requested result; differences between a finished
                 result and a request
call             the function plan, which plans a method without running it
method_function  public functions of methods, from their declarations
where            arguments for the place of execution and its resources, which all functions take
arguments        checks of the arguments of callers in Python
docstrings       completes docstrings with arguments that many functions share
"""
