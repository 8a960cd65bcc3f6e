"""Preparation: steps that are applied to a matrix of raw data as it is read; their output is never written.

steps              steps that need no measurement, and the numbers that they change
moments            sums over a matrix that steps are measured by
variable_columns   which columns vary most for their mean
measured_rows      steps that make rows comparable, measured on the matrix first
measured_columns   the same for columns, which are scaled or filled in
given_weights      weights of columns and rows that a caller gives
chosen_columns     steps that keep some of the columns
local_regression   a smooth curve through points
gaps               marks of missing values, and completion of rows by a model of low rank
words              steps as text, and their registry
centered_rows      rows less their own mean, as correlation compares them
prepared           a matrix whose numbers go through steps whenever they are read
affine             shift and factor that steps applied to columns, and their inverse
alike              matching of the columns of matrices by name
"""
