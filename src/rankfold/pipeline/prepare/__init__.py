"""Steps that make a matrix of raw data, as it is read and never written.

steps              what a step does to numbers that need not be measured before
moments            sums over a matrix that steps are measured by
variable_columns   which columns vary most for their mean
measured_rows      steps that make rows comparable, for which the matrix is looked at first
measured_columns   the same of columns, which are scaled or filled in
given_weights      weights of columns and rows that somebody gives
chosen_columns     steps that keep some of the columns
local_regression   a smooth curve through points
gaps               what marks what is missing, and completion of rows by a model of low rank
words              how steps are said
centered_rows      rows less their own mean, as correlation compares them
prepared           a matrix whose numbers go through steps whenever they are read
affine             what steps did to columns, and the same taken back
alike              columns of matrices that meet, compared by name
"""
