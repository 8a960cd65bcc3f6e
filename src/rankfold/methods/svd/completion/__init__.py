"""Missing numbers of a matrix, completed by a model of low rank before a solver begins: ``missing="em"``.

low_rank_model    the model, and its update from sums over all rows; extrapolation of models over several
                  passes
first_model       the first model, from a sample of rows
completion        passes until missing numbers have settled: their plan and their work; one pass: sums over
                  all rows
"""
