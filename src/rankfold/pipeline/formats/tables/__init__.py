"""Tables: files of rows with named columns, read from beginning to end.

options    options of a caller for reading a table; choice of columns
columns    conversion of Arrow arrays to rows of numbers
row_names  names of the rows, from a column of a table
cells      conversion of text cells to numbers
dialect    separator, number style and header of a text file
delimited  .csv, .tsv, .txt, also compressed
parquet    .parquet, or a folder of them
several    text files of the same columns, stacked by rows; a small table, read in place
overview   description of the columns of a table
"""
