"""Tables: files of rows below named columns, read from beginning to end.

options    what a caller says of a file; which columns are taken
columns    arrays of Arrow become rows of numbers
row_names  names of the rows, as a column of a table holds them
cells      cells of text as numbers
dialect    how a text file is written
delimited  .csv, .tsv, .txt, also compressed
parquet    .parquet, or a folder of them
several    text files of the same columns, one below the other
source     a small table, read in place
overview   what the columns of a table hold
"""
