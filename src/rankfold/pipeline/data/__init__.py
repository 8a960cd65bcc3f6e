"""Matrices: protocols, views, selections, names and types, wherever a matrix is stored.

source            the protocol of a matrix, and that of an array of more axes
grid              the cut of an axis into native chunks
dtypes            what counts as a matrix; another type, without silent loss
view              the matrix as long by short
stacked           an array of more axes as a matrix
selection         rows and columns of a matrix
picks             selected places along an axis: slices, masks, lists
missing_columns   a matrix without columns that are missing throughout
missing_rows      a matrix without rows that are missing throughout
meaning           rules that decode stored numbers, from the attributes of an array
decoded           an array of decoded numbers
allele_counts     calls of alleles as counts, by sample
alleles           names of variants, with the allele that is counted
named_objects     names of rows and columns of frames, Series and DataArrays
names             names of rows and columns, and their places among others
attributes        attributes that describe numbers: units, names, calendars
longitudes        labels that are degrees of longitude
runs              places as runs, as facts of a result keep them
pandas_index      an index of pandas, rebuilt from its names as text
real_parts        a complex matrix as the real one of its parts
places            the place of an element in the array that a matrix was made from
describe          a description of a store, for people
"""
