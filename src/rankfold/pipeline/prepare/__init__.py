"""Preparation: steps that are applied to a matrix of raw data as it is read; their output is never written.

steps              steps that need no measurement, and the values that they change
moments            means, variances and sums of rows and columns, which steps need
measured_columns   steps that scale columns or fill in missing values, measured on the matrix first; steps
                   that make rows comparable, measured on the matrix first
given_weights      weights of columns and rows that a caller gives
chosen_columns     steps that keep some of the columns; which columns vary most for their mean; a smooth
                   curve through points
gaps               marks of missing values, and completion of rows by a model of low rank
parse              steps as text, and their registry
centered_rows      rows less their own mean, as correlation compares them
prepared           a matrix whose values go through steps whenever they are read
affine             shift and factor that steps applied to columns, and their inverse
alike              matching of the columns of matrices by name
"""
